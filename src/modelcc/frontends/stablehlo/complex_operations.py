"""Operations on complex numbers.

Data movement is applied to each part, bilinear operations become products of parts, and functions
are computed by formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from modelcc.frontends.kit.complex_functions import (
    Complex,
    complex_arctangent,
    cosine,
    cube_root,
    direction,
    exponential,
    exponential_less_one,
    greater,
    hyperbolic_tangent,
    lesser,
    logarithm,
    logarithm_of_one_more,
    logistic,
    magnitude,
    power,
    reciprocal_root,
    root,
    sine,
    tangent,
)
from modelcc.frontends.kit.complex_values import ComplexValue, part_type
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.stablehlo.call import Handler, Handlers, HloCall, Results, table
from modelcc.frontends.stablehlo.complex_matrices import COMPLEX_MATRICES
from modelcc.frontends.stablehlo.complex_regions import BY_REGIONS
from modelcc.frontends.stablehlo.elementwise import is_finite
from modelcc.frontends.stablehlo.module import Operation, ValueType
from modelcc.frontends.stablehlo.regions import single, spelled
from modelcc.frontends.stablehlo.structure import converted, iota
from modelcc.ir.types import Array, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.generate import Full


def is_complex(call: HloCall) -> bool:
    """Whether an operand is complex, or a result of an operation without complex operands.

    The region of a reduction on parts declares its operands complex, which they are not.
    """
    made = _has_complex(call.op.types) and not _has_complex(call.op.operand_types)
    return made or any(call.emitter.find_group(name) is not None for name in call.inputs)


def _has_complex(types: Sequence[ValueType]) -> bool:
    return any(type.dtype is not None and type.dtype.kind == "complex" for type in types)


def complex_results(call: HloCall, handler: Handler | None) -> Results:
    """The results of an operation on complex numbers; ``handler`` is that of real ones."""
    name = call.op.name
    own = FORMULAS.get(name)
    if own is not None:
        return own(call)
    if handler is None or name in WHOLE_VALUES:
        return unsupported("modelcc does not have this operation") if handler is None else handler(
            call)  # fmt: skip
    if name in PRODUCTS:
        return _product(call, handler)
    if name in PARTWISE and _is_linear(call):
        return _partwise(call, handler)
    if name in BY_REGIONS:
        return BY_REGIONS[name](call)
    unsupported("it has no meaning on complex numbers here")


def _names(*names: str) -> frozenset[str]:
    return frozenset(f"stablehlo.{name}" for name in names)


WHOLE_VALUES = frozenset(
    {"func.call", "modelcc.inline", "sdy.sharding_constraint"}
) | _names(
    "while", "if", "case", "composite", "map", "optimization_barrier", "custom_call", "fft",
    "get_dimension_size",
)  # fmt: skip
"""Operations that pass values through, whatever their type."""

PRODUCTS = _names("dot_general", "dot", "convolution")
PARTWISE = _names(
    "reshape", "dynamic_reshape", "transpose", "broadcast_in_dim", "dynamic_broadcast_in_dim",
    "slice", "real_dynamic_slice", "reverse", "concatenate", "pad", "dynamic_pad", "gather",
    "dynamic_gather", "dynamic_slice", "dynamic_update_slice", "select", "scatter", "reduce",
    "reduce_window", "add", "subtract", "negate", "select_and_scatter",
)  # fmt: skip


def _is_linear(call: HloCall) -> bool:
    """Whether the regions apply to each part separately."""
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
    """From products of parts."""
    op = _of_reals(call.op)
    sides = [[_part(call, name, n) for n in (0, 1)] for name in call.inputs[:2]]

    def product(a: int, b: int) -> Value:
        inputs = (sides[0][a], sides[1][b], *call.inputs[2:])
        (name,) = _listed(handler(replace(call.with_inputs(*inputs), op=op)))
        return call.as_value(name)

    return _pair(call, product(0, 0) - product(1, 1), product(0, 1) + product(1, 0))


def _pair(call: HloCall, real: Value, imag: Value) -> str:
    return call.group(ComplexValue(real.name, imag.name))


def _operand(call: HloCall, number: int) -> Complex:
    name = call.inputs[number]
    real = call.as_value(_part(call, name, 0))
    whole = call.emitter.find_group(name) is not None
    return Complex(real, call.as_value(_part(call, name, 1)) if whole else _none(call, real))


def _none(call: HloCall, real: Value) -> Value:
    """Zero imaginary parts of real numbers."""
    return call.made(Full(real.type.shape, 0, real.type.dtype))


def _unary(function: Callable[[Complex], Complex]) -> Handler:
    def handler(call: HloCall) -> str:
        found = function(_operand(call, 0))
        return _pair(call, found.re, found.im)

    return handler


def _binary(function: Callable[[Complex, Complex], Complex]) -> Handler:
    def handler(call: HloCall) -> str:
        found = function(_operand(call, 0), _operand(call, 1))
        return _pair(call, found.re, found.im)

    return handler


def _constant(call: HloCall) -> str:
    value: Array = np.asarray(call.attribute("value"))
    parts = call.constant(np.real(value)), call.constant(np.imag(value))
    return call.group(ComplexValue(*parts))


def _complex(call: HloCall) -> str:
    return call.group(ComplexValue(*call.inputs))


def _compare(call: HloCall) -> str:
    """Equality or inequality of both parts."""
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
    return magnitude(_operand(call, 0)).name


def _iota(call: HloCall) -> str:
    real = call.as_value(iota(replace(call, op=_of_reals(call.op))))
    return call.group(ComplexValue(real.name, _none(call, real).name))


def _same_bits(call: HloCall) -> str:
    if call.result_dtype != call.op.operand_types[0].dtype:
        unsupported("the bits of complex numbers as another type")
    return call.input(0)


_FORMULAS: Handlers = table(
    bitcast_convert=_same_bits,
    constant=_constant,
    complex=_complex,
    real=_real,
    imag=_imag,
    compare=_compare,
    convert=_convert,
    is_finite=_both_finite,
    abs=_abs,
    multiply=_binary(Complex.__mul__),
    divide=_binary(Complex.__truediv__),
    power=_binary(power),
    exponential=_unary(exponential),
    exponential_minus_one=_unary(exponential_less_one),
    log=_unary(logarithm),
    log_plus_one=_unary(logarithm_of_one_more),
    sqrt=_unary(root),
    rsqrt=_unary(reciprocal_root),
    sine=_unary(sine),
    cosine=_unary(cosine),
    tan=_unary(tangent),
    tanh=_unary(hyperbolic_tangent),
    logistic=_unary(logistic),
    sign=_unary(direction),
    cbrt=_unary(cube_root),
    atan2=_binary(complex_arctangent),
    maximum=_binary(greater),
    minimum=_binary(lesser),
    iota=_iota,
)
FORMULAS: Handlers = MappingProxyType({**_FORMULAS, **COMPLEX_MATRICES})
