"""Handlers of fake quantisation, with masks of elements in range."""

from __future__ import annotations

from modelcc.frontends.torch.aten import Aten, Operand, overloads
from modelcc.ir.types import BOOL, F32, F64
from modelcc.ops.arithmetic import Round, Value, of
from modelcc.ops.comparison import GreaterOrEqual, LessOrEqual, Max, Min, where
from modelcc.ops.logic import And
from modelcc.ops.views import cast, reshaped

Quantized = tuple[Value, Value]


def per_tensor(
    call: Aten, x: Value, scale: Operand, zero: Operand, low: int, high: int
) -> Quantized:
    """One scale and zero point for all elements."""
    wide = F64 if x.type.dtype == F64 else F32
    step, offset = call.as_value(call.as_value(scale, F32), wide), call.as_value(zero, wide)
    turned = of(Round(), cast(x, wide) * cast(1.0 / cast(step, F32), wide)) + offset
    least, most = turned.lift(low), turned.lift(high)
    kept = of(Min(), of(Max(), turned, least), most)
    inside = of(And(), of(GreaterOrEqual(), turned, least), of(LessOrEqual(), turned, most))
    return cast((kept - offset) * step, x.type.dtype), inside


def per_channel(
    call: Aten, x: Value, scale: Value, zero: Value, axis: int, low: int, high: int
) -> Quantized:
    """A scale and a zero point for each index along an axis."""
    own = call.axis(axis, x.type.rank)
    shape = [e if a == own else 1 for a, e in enumerate(x.type.shape)]
    return per_tensor(call, x, reshaped(scale, *shape), reshaped(zero, *shape), low, high)


def where_enabled(
    call: Aten, x: Value, scale: Value, zero: Value, enabled: Value, low: int, high: int
) -> Quantized:
    """Unquantised where ``enabled``, a tensor of one number, is 0."""
    on = cast(reshaped(enabled, *(1,) * x.type.rank), BOOL)
    y, inside = per_tensor(call, x, scale, zero, low, high)
    return where(on, y, x), where(on, inside, inside.lift(True))


FAKE_QUANTIZATION = overloads(
    {
        "fake_quantize_per_tensor_affine_cachemask": per_tensor,
        "fake_quantize_per_channel_affine_cachemask": per_channel,
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams": where_enabled,
    }
)
