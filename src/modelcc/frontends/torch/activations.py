"""Handlers of activation functions that are ops of modelcc; PyTorch decomposes the others."""

from __future__ import annotations

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.torch.aten import Aten, Handler, table
from modelcc.frontends.torch.pointwise import promoting
from modelcc.ir.op import Op
from modelcc.ir.types import BF16, F16, F32
from modelcc.ops import activation as act
from modelcc.ops import transcendental as tr
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import above, where
from modelcc.ops.views import cast


def _wide(op: Op, x: Value) -> Value:
    """``op`` on 16-bit floats computed in f32, rounded once, as in PyTorch."""
    dtype = x.type.dtype
    return cast(of(op, cast(x, F32)), dtype) if dtype in (F16, BF16) else of(op, x)


def widening(op: Op) -> Handler:
    def handler(call: Aten, x: Value) -> Value:
        return _wide(op, x)

    return handler


def gelu(call: Aten, x: Value, approximate: str = "none") -> Value:
    kind = call.choice(approximate, ("none", "tanh"), "approximate")
    return _wide(act.Gelu("tanh" if kind == "tanh" else "none"), x)


def leaky_relu(call: Aten, x: Value, negative_slope: float = 0.01) -> Value:
    return of(act.LeakyRelu(float(negative_slope)), x)


def elu(
    call: Aten, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0
) -> Value:
    """``scale * x``, for negative ``x`` ``scale * alpha * (exp(input_scale * x) - 1)``."""
    if scale == input_scale == 1:
        return of(act.Elu(float(alpha)), x)
    below = of(tr.Expm1(), x * float(input_scale)) * (float(alpha) * float(scale))
    return where(above(x, 0.0), x * float(scale), below)


def hardtanh(call: Aten, x: Value, min_val: float = -1.0, max_val: float = 1.0) -> Value:
    return of(act.Clip(min_val, max_val), x)


def softplus(call: Aten, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Value:
    """``x`` beyond ``threshold``."""
    inner = x * float(beta)
    return where(above(inner, float(threshold)), x, of(act.Softplus(), inner) / float(beta))


def rrelu(
    call: Aten, x: Value, noise: Value, lower: float = 1 / 8, upper: float = 1 / 3,
    training: bool = False, *_: object,
) -> tuple[Value, Value]:  # fmt: skip
    """In evaluation mode, with the mean slope."""
    if training:
        unsupported("in training it draws random numbers")
    return of(act.LeakyRelu((float(lower) + float(upper)) / 2), x), noise


ACTIVATIONS = table(
    rrelu_with_noise_functional=rrelu,
    relu=promoting(act.Relu()),
    silu=widening(act.Silu()),
    mish=widening(act.Mish()),
    hardswish=widening(act.HardSwish()),
    hardsigmoid=promoting(act.HardSigmoid(1 / 6, 0.5)),
    gelu=gelu,
    leaky_relu=leaky_relu,
    elu=elu,
    hardtanh=hardtanh,
    softplus=softplus,
)
