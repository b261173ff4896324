"""Complex numbers: pairs of real values at import, of which nothing complex is left in the graph.

What moves elements is done to each part, what is linear in each of two operands by products of
parts, and functions by their formulas.  Inputs and outputs of a model have their parts in a last
axis of two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.groups import GroupValue
from modelcc.frontends.stablehlo.call import Handler, Handlers, HloCall, Results, table
from modelcc.frontends.stablehlo.elementwise import atan2, is_finite
from modelcc.frontends.stablehlo.module import Operation, ValueType
from modelcc.frontends.stablehlo.regions import single, spelled
from modelcc.frontends.stablehlo.structure import converted
from modelcc.ir.types import F32, F64, Array, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.control import At
from modelcc.ops.generate import Full
from modelcc.ops.shape import Concat


@dataclass(frozen=True)
class ComplexValue(GroupValue):
    """A tensor of complex numbers: its real and its imaginary part, of one type."""

    real: str
    imag: str
    kind = "a tensor of complex numbers"

    @property
    def parts(self) -> tuple[str, ...]:
        return self.real, self.imag

    def of(self, parts: Sequence[str]) -> GroupValue:
        real, imag = parts
        return ComplexValue(real, imag)


def part_type(dtype: DType) -> DType:
    """The type of the parts of complex numbers."""
    return F32 if dtype.bits == 64 else F64


def of_parts(emitter: Emitter, name: str) -> str:
    """The complex numbers whose parts are the last axis of ``name``."""
    axis = emitter.type_of(name).rank - 1
    return emitter.group(ComplexValue(*(emitter.emit(At(axis, n), name) for n in (0, 1))))


def as_parts(emitter: Emitter, name: str) -> str:
    """``name``; of complex numbers the parts in a last axis."""
    group = emitter.find_group(name)
    if group is None:
        return name
    shape = emitter.type_of(group.parts[0]).shape
    parts = [emitter.emit(Reshape((*shape, 1)), part) for part in group.parts]
    return emitter.emit(Concat(len(shape)), *parts)


def is_complex(call: HloCall) -> bool:
    """Whether an operand is complex, or a result of others.

    The region of a reduction of parts says that its operands are complex, which they are not.
    """
    made = _has_complex(call.op.types) and not _has_complex(call.op.operand_types)
    return made or any(call.emitter.find_group(name) is not None for name in call.inputs)


def _has_complex(types: Sequence[ValueType]) -> bool:
    return any(type.dtype is not None and type.dtype.kind == "complex" for type in types)


def complex_results(call: HloCall, handler: Handler | None) -> Results:
    """The results of an operation on complex numbers; ``handler`` is that of real ones."""
    name = call.op.name
    own = _FORMULAS.get(name)
    if own is not None:
        return own(call)
    if handler is None or name in WHOLE_VALUES:
        return unsupported("modelcc does not have this operation") if handler is None else handler(
            call)  # fmt: skip
    if name in PRODUCTS:
        return _product(call, handler)
    if name in PARTWISE and _is_linear(call):
        return _partwise(call, handler)
    unsupported("it has no meaning on complex numbers here")


def _names(*names: str) -> frozenset[str]:
    return frozenset(f"stablehlo.{name}" for name in names)


WHOLE_VALUES = frozenset(
    {"func.call", "modelcc.inline", "sdy.sharding_constraint"}
) | _names(
    "while", "if", "case", "composite", "map", "optimization_barrier", "custom_call", "fft",
    "get_dimension_size",
)  # fmt: skip
"""Operations that pass values on, whatever they are."""

PRODUCTS = _names("dot_general", "dot", "convolution")
PARTWISE = _names(
    "reshape", "dynamic_reshape", "transpose", "broadcast_in_dim", "dynamic_broadcast_in_dim",
    "slice", "real_dynamic_slice", "reverse", "concatenate", "pad", "dynamic_pad", "gather",
    "dynamic_gather", "dynamic_slice", "dynamic_update_slice", "select", "scatter", "reduce",
    "reduce_window", "add", "subtract", "negate", "select_and_scatter",
)  # fmt: skip


def _is_linear(call: HloCall) -> bool:
    """Whether what the regions do is done to each part by itself."""
    if call.op.name == "stablehlo.select_and_scatter":
        return False
    return all(single(r) == "add" or spelled(r) == ("a1",) for r in call.op.regions)


def part(call: HloCall, number: int) -> HloCall:
    """The operation on the real (0) or the imaginary (1) parts."""
    names = [_part(call, name, number) for name in call.inputs]
    return replace(call.with_inputs(*names), op=_of_reals(call.op))


def _part(call: HloCall, name: str, number: int) -> str:
    group = call.emitter.find_group(name)
    return name if group is None else group.parts[number]


def _of_reals(op: Operation) -> Operation:
    return replace(
        op,
        types=tuple(map(_real_type, op.types)),
        operand_types=tuple(map(_real_type, op.operand_types)),
    )


def _real_type(type: ValueType) -> ValueType:
    dtype = type.dtype
    return type if dtype is None or dtype.kind != "complex" else replace(
        type, dtype=part_type(dtype))  # fmt: skip


def _listed(results: Results) -> Sequence[str]:
    return (results,) if isinstance(results, str) else results


def _partwise(call: HloCall, handler: Handler) -> Sequence[str]:
    real, imag = (_listed(handler(part(call, n))) for n in (0, 1))
    return [call.group(ComplexValue(a, b)) for a, b in zip(real, imag, strict=True)]


def _product(call: HloCall, handler: Handler) -> str:
    """By the products of parts."""
    op = _of_reals(call.op)
    sides = [[_part(call, name, n) for n in (0, 1)] for name in call.inputs[:2]]

    def product(a: int, b: int) -> Value:
        inputs = (sides[0][a], sides[1][b], *call.inputs[2:])
        (name,) = _listed(handler(replace(call.with_inputs(*inputs), op=op)))
        return call.as_value(name)

    return _pair(call, product(0, 0) - product(1, 1), product(0, 1) + product(1, 0))


def _pair(call: HloCall, real: Value, imag: Value) -> str:
    return call.group(ComplexValue(real.name, imag.name))


@dataclass(frozen=True)
class Complex:
    """A complex operand, for arithmetic."""

    re: Value
    im: Value

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.re + other.re, self.im + other.im)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.re - other.re, self.im - other.im)

    def __mul__(self, other: Complex) -> Complex:
        return Complex(
            self.re * other.re - self.im * other.im, self.re * other.im + self.im * other.re
        )

    def __truediv__(self, other: Complex) -> Complex:
        """Scaled by the greater part of the divisor, whose square may overflow."""
        scale = of(ew.Max(), of(ew.Abs(), other.re), of(ew.Abs(), other.im))
        re, im = other.re / scale, other.im / scale
        total = (re * re + im * im) * scale
        return Complex((self.re * re + self.im * im) / total, (self.im * re - self.re * im) / total)

    def scaled(self, factor: float) -> Complex:
        return Complex(self.re * factor, self.im * factor)

    def turned(self) -> Complex:
        """Times i."""
        return Complex(-self.im, self.re)


def _operand(call: HloCall, number: int) -> Complex:
    name = call.inputs[number]
    real = call.as_value(_part(call, name, 0))
    whole = call.emitter.find_group(name) is not None
    return Complex(real, call.as_value(_part(call, name, 1)) if whole else _none(call, real))


def _none(call: HloCall, real: Value) -> Value:
    """Imaginary parts of real numbers."""
    return call.made(Full(real.type.shape, 0, real.type.dtype))


def _size(z: Complex) -> Value:
    """The absolute value, without overflow."""
    a, b = of(ew.Abs(), z.re), of(ew.Abs(), z.im)
    great, less = of(ew.Max(), a, b), of(ew.Min(), a, b)
    plain = of(ew.Or(), of(ew.Equal(), great, great.lift(0.0)), of(ew.IsInf(), great))
    ratio = less / of(ew.Where(), plain, great.lift(1.0), great)
    return of(ew.Where(), plain, great, great * of(ew.Sqrt(), ratio * ratio + 1.0))


def _angle(call: HloCall, z: Complex) -> Value:
    return call.as_value(atan2(call.with_inputs(z.im.name, z.re.name)))


def _exp(z: Complex) -> Complex:
    size = of(ew.Exp(), z.re)
    real = of(ew.Equal(), z.im, z.im.lift(0.0))
    sine = of(ew.Where(), real, z.im, size * of(ew.Sin(), z.im))
    return Complex(size * of(ew.Cos(), z.im), sine)


def _log(call: HloCall, z: Complex) -> Complex:
    return Complex(of(ew.Log(), _size(z)), _angle(call, z))


def _sqrt(call: HloCall, z: Complex) -> Complex:
    """The root in the right half plane: of ``|re| + |z|``, the other part by division."""
    size = _size(z)
    root = of(ew.Sqrt(), (of(ew.Abs(), z.re) + size) * 0.5)
    zero = of(ew.Equal(), root, root.lift(0.0))
    other = of(ew.Abs(), z.im) / of(ew.Where(), zero, root.lift(1.0), root) * 0.5
    right = of(ew.GreaterOrEqual(), z.re, z.re.lift(0.0))
    re, im = of(ew.Where(), right, root, other), of(ew.Where(), right, other, root)
    below = of(ew.Less(), _angle(call, z), z.im.lift(0.0))
    return Complex(re, of(ew.Where(), below, -im, im))


def _sin(z: Complex) -> Complex:
    return Complex(
        of(ew.Sin(), z.re) * of(ew.Cosh(), z.im), of(ew.Cos(), z.re) * of(ew.Sinh(), z.im)
    )


def _cos(z: Complex) -> Complex:
    return Complex(
        of(ew.Cos(), z.re) * of(ew.Cosh(), z.im), -of(ew.Sin(), z.re) * of(ew.Sinh(), z.im)
    )


def _tanh(z: Complex) -> Complex:
    """``(t (1 + u²) + i u (1 - t²)) / (1 + t² u²)`` with ``t = tanh re``, ``u = tan im``."""
    t, u = of(ew.Tanh(), z.re), of(ew.Tan(), z.im)
    below = (t * u) * (t * u) + 1.0
    cosh = of(ew.Cosh(), of(ew.Min(), of(ew.Abs(), z.re), z.re.lift(40.0)))
    return Complex(t * (u * u + 1.0) / below, u / (cosh * cosh) / below)


def _tan(z: Complex) -> Complex:
    back = _tanh(z.turned())
    return Complex(back.im, -back.re)


def _log1p(call: HloCall, z: Complex) -> Complex:
    """``log |1 + z|`` as half of ``log1p(re (2 + re) + im²)``."""
    inner = z.re * (z.re + 2.0) + z.im * z.im
    angle = _angle(call, Complex(z.re + 1.0, z.im))
    return Complex(of(ew.Log1p(), inner) * 0.5, angle)


def _expm1(z: Complex) -> Complex:
    """``expm1(re) cos(im) - 2 sin²(im / 2)``."""
    half = of(ew.Sin(), z.im * 0.5)
    re = of(ew.Expm1(), z.re) * of(ew.Cos(), z.im) - half * half * 2.0
    return Complex(re, _exp(z).im)


def _sign(z: Complex) -> Complex:
    size = _size(z)
    zero = of(ew.Equal(), size, size.lift(0.0))
    safe = of(ew.Where(), zero, size.lift(1.0), size)
    return Complex(z.re / safe, z.im / safe)


def _power(call: HloCall, a: Complex, b: Complex) -> Complex:
    found = _exp(_log(call, a) * b)
    zero = of(ew.Equal(), _size(a), a.re.lift(0.0))
    none = of(ew.Equal(), _size(b), b.re.lift(0.0))
    re = of(ew.Where(), zero, of(ew.Where(), none, a.re.lift(1.0), a.re.lift(0.0)), found.re)
    return Complex(re, of(ew.Where(), zero, a.im.lift(0.0), found.im))


def _one(call: HloCall, like: Complex) -> Complex:
    return Complex(like.re.lift(1.0), like.re.lift(0.0))


def _unary(function: Callable[[HloCall, Complex], Complex]) -> Handler:
    def handler(call: HloCall) -> str:
        found = function(call, _operand(call, 0))
        return _pair(call, found.re, found.im)

    return handler


def _binary(function: Callable[[HloCall, Complex, Complex], Complex]) -> Handler:
    def handler(call: HloCall) -> str:
        found = function(call, _operand(call, 0), _operand(call, 1))
        return _pair(call, found.re, found.im)

    return handler


def _constant(call: HloCall) -> str:
    value: Array = np.asarray(call.attribute("value"))
    parts = call.constant(np.real(value)), call.constant(np.imag(value))
    return call.group(ComplexValue(*parts))


def _complex(call: HloCall) -> str:
    return call.group(ComplexValue(*call.inputs))


def _compare(call: HloCall) -> str:
    """Whether both parts are equal, or not."""
    a, b = _operand(call, 0), _operand(call, 1)
    if call.attribute("comparison_direction") == "EQ":
        return of(ew.And(), of(ew.Equal(), a.re, b.re), of(ew.Equal(), a.im, b.im)).name
    return of(ew.Or(), of(ew.NotEqual(), a.re, b.re), of(ew.NotEqual(), a.im, b.im)).name


def _convert(call: HloCall) -> str:
    to = call.result_dtype
    if to.kind != "complex":
        return converted(call, _part(call, call.inputs[0], 0), to)
    z = _operand_as(call, part_type(to))
    return _pair(call, *z)


def _operand_as(call: HloCall, dtype: DType) -> tuple[Value, Value]:
    real = call.as_value(converted(call, _part(call, call.inputs[0], 0), dtype))
    if call.emitter.find_group(call.inputs[0]) is None:
        return real, _none(call, real)
    return real, call.as_value(converted(call, _part(call, call.inputs[0], 1), dtype))


def _both_finite(call: HloCall) -> str:
    each = [call.as_value(is_finite(part(call, n))) for n in (0, 1)]
    return of(ew.And(), *each).name


def _real(call: HloCall) -> str:
    return _part(call, call.inputs[0], 0)


def _imag(call: HloCall) -> str:
    return _operand(call, 0).im.name


def _abs(call: HloCall) -> str:
    return _size(_operand(call, 0)).name


_FORMULAS: Handlers = table(
    constant=_constant,
    complex=_complex,
    real=_real,
    imag=_imag,
    compare=_compare,
    convert=_convert,
    is_finite=_both_finite,
    abs=_abs,
    multiply=_binary(lambda call, a, b: a * b),
    divide=_binary(lambda call, a, b: a / b),
    power=_binary(_power),
    atan2=_binary(lambda call, a, b: unsupported("atan2 of complex numbers")),
    exponential=_unary(lambda call, z: _exp(z)),
    exponential_minus_one=_unary(lambda call, z: _expm1(z)),
    log=_unary(_log),
    log_plus_one=_unary(_log1p),
    sqrt=_unary(_sqrt),
    rsqrt=_unary(lambda call, z: _one(call, z) / _sqrt(call, z)),
    sine=_unary(lambda call, z: _sin(z)),
    cosine=_unary(lambda call, z: _cos(z)),
    tan=_unary(lambda call, z: _tan(z)),
    tanh=_unary(lambda call, z: _tanh(z)),
    logistic=_unary(lambda call, z: _one(call, z) / (_one(call, z) + _exp(z.scaled(-1.0)))),
    sign=_unary(lambda call, z: _sign(z)),
)
