"""Handlers of gradients whose conditions determine the result at NaN.

PyTorch's decompositions take the other branch at NaN than its kernels: where the vectorised kernel
yields 0, or NaN, the decomposition passes the gradient on.
"""

from __future__ import annotations

from modelcc.frontends.torch.aten import Aten, Handler, Number, table
from modelcc.ir.index import product
from modelcc.ops import elementwise as ew
from modelcc.ops import logic
from modelcc.ops import transcendental as tr
from modelcc.ops.accumulate import accumulator
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import above, where
from modelcc.ops.views import cast


def widening(rule: Handler) -> Handler:
    """``rule`` on two operands converted to at least f32, rounded once."""

    def handler(call: Aten, x: Value, y: Value, *rest: object) -> Value:
        wide = (cast(v, accumulator(v.type.dtype)) for v in (x, y))
        made = rule(call, *wide, *rest)
        assert isinstance(made, Value)
        return call.as_value(made)

    return handler


def hardtanh_backward(call: Aten, dy: Value, x: Value, low: Number, high: Number) -> Value:
    """0 at NaN."""
    inside = of(logic.And(), above(x, float(low)), of(ew.Less(), x, x.lift(float(high))))
    return where(inside, dy, 0.0)


def hardswish_backward(call: Aten, dy: Value, x: Value) -> Value:
    """NaN at NaN."""
    curve = where(of(ew.LessOrEqual(), x, x.lift(-3.0)), 0.0, dy * (x * (1 / 3) + 0.5))
    return where(of(ew.GreaterOrEqual(), x, x.lift(3.0)), dy, curve)


def elu_backward(
    call: Aten, dy: Value, alpha: float, scale: float, input_scale: float, is_result: bool,
    x: Value,
) -> Value:  # fmt: skip
    """NaN at NaN; with ``is_result``, ``x`` is the function's result."""
    dtype = accumulator(dy.type.dtype)
    dy, x = cast(dy, dtype), cast(x, dtype)
    low = float(alpha) * float(scale)
    slope = x + low if is_result else of(tr.Exp(), x * float(input_scale)) * low
    curve = dy * float(input_scale) * slope
    return call.as_value(where(above(x, 0.0), dy * float(scale), curve))


def smooth_l1_backward(
    call: Aten, dy: Value, x: Value, target: Value, reduction: int, beta: float
) -> Value:
    """NaN at NaN."""
    dtype = accumulator(call.result.dtype)
    difference = cast(x, dtype) - cast(target, dtype)
    far = of(ew.GreaterOrEqual(), of(ew.Abs(), difference), difference.lift(float(beta)))
    slope = where(far, of(ew.Sign(), difference), difference / float(beta))
    share = cast(dy, dtype)
    if reduction == _MEAN:
        share = share / call.as_value(product(difference.type.shape), dtype)
    return call.as_value(share * slope)


_MEAN = 1
"""PyTorch's code of the mean reduction of losses."""

ACTIVATION_GRADIENTS = table(
    hardtanh_backward=widening(hardtanh_backward),
    hardswish_backward=widening(hardswish_backward),
    elu_backward=elu_backward,
    smooth_l1_loss_backward=smooth_l1_backward,
)
