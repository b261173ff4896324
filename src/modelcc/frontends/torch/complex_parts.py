"""Complex tensors of PyTorch as pairs of real ones, and operators applied to each part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from modelcc.frontends.kit.complex_functions import Complex
from modelcc.frontends.kit.complex_values import ComplexValue, part_type
from modelcc.frontends.torch.aten import Aten, Handler, Number, Operand, Result
from modelcc.frontends.torch.views import expanded
from modelcc.ir.types import DType, TensorType
from modelcc.ops.arithmetic import Value
from modelcc.ops.generate import Full
from modelcc.ops.views import cast as as_type

ComplexOperand = Operand | complex


def is_complex(call: Aten) -> bool:
    """Whether an operand or a result is complex."""
    made = any(type is not None and type.dtype.kind == "complex" for type in call.results)
    return made or any(call.emitter.find_group(name) is not None for name in call.inputs)


def real_type(dtype: DType) -> DType:
    """``dtype``; for a complex one that of its parts."""
    return part_type(dtype) if dtype.kind == "complex" else dtype


def parts_of(x: Value) -> Sequence[Value] | None:
    """Both parts of a complex value; None of a real one."""
    group = cast(Aten, x.build).emitter.find_group(x.name)
    return None if group is None else [Value(x.build, part) for part in group.parts]


def operand(call: Aten, x: ComplexOperand, dtype: DType | None = None) -> Complex:
    """Any operand as a complex one with parts of ``dtype``, by default those of the result."""
    wanted = real_type(call.result.dtype) if dtype is None else dtype
    if isinstance(x, complex):
        return Complex(call.as_value(x.real, wanted), call.as_value(x.imag, wanted))
    parts = parts_of(x) if isinstance(x, Value) else None
    if parts is not None:
        return Complex(*(as_type(part, wanted) for part in parts))
    real = call.as_value(x, wanted)
    return Complex(real, call.made(Full(real.type.shape, 0, wanted)))


def joined(call: Aten, re: Value, im: Value) -> Value:
    """The complex value of these parts, which have the same shape."""
    return Value(call, call.group(ComplexValue(re.name, im.name)))


def pair(call: Aten, z: Complex) -> Value:
    """``z`` in the shape of the first result, as a value."""
    return joined(call, *(expanded(part, call.extents()) for part in (z.re, z.im)))


def promoted(call: Aten, x: Any) -> Any:
    """A real tensor, a number or a list of them as complex."""
    match x:
        case int() | float():
            return complex(x)
        case tuple():
            return tuple(promoted(call, item) for item in cast("tuple[Any, ...]", x))
        case Value():
            z = operand(call, x)
            return joined(call, z.re, z.im)
        case _:
            return x


def part_call(call: Aten, number: int) -> Aten:
    """The operator on the real (0) or imaginary (1) parts."""
    types = (t and TensorType(t.shape, real_type(t.dtype)) for t in call.results)
    groups = map(call.emitter.find_group, call.inputs)
    names = (n if g is None else g.parts[number] for n, g in zip(call.inputs, groups, strict=True))
    return replace(call, inputs=tuple(names), results=tuple(types))


def _part(x: Any, number: int) -> Any:
    match x:
        case Value():
            parts = parts_of(x)
            return x if parts is None else parts[number]
        case complex():
            return x.imag if number else x.real
        case DType():
            return real_type(x)
        case tuple():
            return tuple(_part(item, number) for item in cast("tuple[Any, ...]", x))
        case _:
            return x


def partwise(call: Aten, handler: Handler, arguments: Sequence[Any]) -> Result:
    """``handler`` applied to the real and to the imaginary parts."""
    re, im = (handler(part_call(call, n), *(_part(x, n) for x in arguments)) for n in (0, 1))
    if isinstance(re, Value) and isinstance(im, Value):
        return joined(call, re, im)
    pairs = zip(cast("Sequence[Value]", re), cast("Sequence[Value]", im), strict=True)
    return [joined(call, *each) for each in pairs]


def product(call: Aten, handler: Handler, a: Value, b: Value, *rest: Any) -> Value:
    """From products of parts; a single one for real operands."""
    real, left, right = part_call(call, 0), parts_of(a) or [a], parts_of(b) or [b]

    def of_parts(i: int, j: int) -> Value:
        found = handler(real, left[i], right[j], *rest)
        assert isinstance(found, Value)
        return found

    if len(left) == len(right) == 2:
        crossed = of_parts(0, 1) + of_parts(1, 0)
        return joined(call, of_parts(0, 0) - of_parts(1, 1), crossed)
    return joined(call, of_parts(0, 0), of_parts(len(left) - 1, len(right) - 1))


def sum_of_products(
    call: Aten, handler: Handler, c: Value, a: Value, b: Value,
    beta: Number | complex = 1, alpha: Number | complex = 1,
) -> Value:  # fmt: skip
    """``beta * c + alpha * (a b)``, with ``handler`` for the products of parts."""
    own = (parts_of(c) or [c])[0]

    def of_parts(real: Aten, x: Value, y: Value) -> Result:
        return handler(real, own, x, y, 0, 1)

    total = operand(call, product(call, of_parts, a, b)) * operand(call, alpha)
    return pair(call, total if beta == 0 else total + operand(call, c) * operand(call, beta))
