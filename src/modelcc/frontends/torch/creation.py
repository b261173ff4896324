"""Handlers of tensors created from sizes and numbers; memory that PyTorch leaves uninitialised is
zeros."""

from __future__ import annotations

from modelcc.frontends.torch.aten import Aten, Handler, Operand, as_number, overloads
from modelcc.ir.index import Expr, Index
from modelcc.ir.types import F64, I64
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Expand
from modelcc.ops.generate import Full, Iota
from modelcc.ops.views import cast


def filled(call: Aten, value: Operand) -> Value:
    """``value`` broadcast to the shape and type that PyTorch infers."""
    if isinstance(value, Value | Expr):
        return of(Expand(call.extents()), call.as_value(value))
    return call.made(Full(call.extents(), as_number(value, call.result.dtype), call.result.dtype))


def constant(value: float) -> Handler:
    """A constant fill."""

    def handler(call: Aten, *_: object) -> Value:
        return filled(call, value)

    return handler


def full(call: Aten, _: object, value: Operand, *options: object) -> Value:
    return filled(call, value)


def new_full(call: Aten, x: Value, _: object, value: Operand, *options: object) -> Value:
    return filled(call, value)


def scalar_tensor(call: Aten, value: Operand, *_: object) -> Value:
    return call.as_value(value)


def arange(call: Aten, end: Operand, *_: object) -> Value:
    return counted(call, 0, 1)


def arange_from(call: Aten, start: Operand, end: Operand, *_: object) -> Value:
    return counted(call, start, 1)


def arange_by(call: Aten, start: Operand, end: Operand, step: Operand = 1, *_: object) -> Value:
    return counted(call, start, step)


def counted(call: Aten, start: Operand, step: Operand) -> Value:
    """``start + i * step``, in f64 for floats, as in PyTorch."""
    shape, dtype = call.extents(), call.result.dtype
    if isinstance(start, float) or isinstance(step, float):
        wide = Iota(shape, 0, _exact(start), _exact(step), F64)
        return cast(call.made(wide), dtype)
    return cast(call.made(Iota(shape, 0, _exact(start), _exact(step), I64)), dtype)


def _exact(x: Operand) -> Index | float:
    assert not isinstance(x, Value)
    return x


def iota(call: Aten, length: Index, *options: object) -> Value:
    given = dict(zip(("start", "step"), options, strict=False))
    return counted(call, given.get("start", 0), given.get("step", 1))  # type: ignore[arg-type]


CREATION = overloads(
    {
        **dict.fromkeys(
            ("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty",
             "new_empty_strided", "zeros", "zeros_like", "new_zeros", "prims.empty_strided",
             "prims.empty_permuted"),
            constant(0),
        ),
        **dict.fromkeys(("ones", "ones_like", "new_ones"), constant(1)),
        **dict.fromkeys(("full", "full_like", "fill", "prims.fill"), full),
        "new_full": new_full,
        "scalar_tensor": scalar_tensor,
        "arange": arange,
        "arange.start": arange_from,
        "arange.start_step": arange_by,
        "prims.iota": iota,
    }
)  # fmt: skip
