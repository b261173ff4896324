"""Operators on complex tensors.

Data movement and sums are applied to each part, bilinear operators become products of parts, and
functions are computed by formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from modelcc.frontends.kit import complex_functions as functions
from modelcc.frontends.kit.complex_functions import Complex
from modelcc.frontends.kit.complex_values import as_parts, of_parts
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.torch import products
from modelcc.frontends.torch.aten import Aten, Handler, Number, Result, table
from modelcc.frontends.torch.complex_parts import (
    ComplexOperand,
    joined,
    operand,
    pair,
    part_call,
    parts_of,
    partwise,
    product,
    promoted,
    real_type,
    sum_of_products,
)
from modelcc.frontends.torch.diagonals import DIAGONALS
from modelcc.frontends.torch.eigenvalues import EIGENVALUES
from modelcc.frontends.torch.fourier import FOURIER
from modelcc.frontends.torch.parts import PARTS
from modelcc.frontends.torch.reductions import REDUCTIONS, vector_norm
from modelcc.frontends.torch.views import VIEWS
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of


def complex_result(call: Aten, handler: Handler | None, arguments: Sequence[Any]) -> Result:
    """The results of an operator on complex tensors; ``handler`` is that of real ones."""
    name = call.target.removeprefix("aten.").split(".")[0]
    own = FORMULAS.get(name)
    if own is not None:
        return own(call, *arguments)
    if handler is None:
        unsupported("modelcc has no such operator")
    if name in PRODUCTS:
        return product(call, handler, *arguments)
    if name in SUMS_OF_PRODUCTS:
        return sum_of_products(call, handler, *arguments)
    if name in PARTWISE:
        places = PROMOTED.get(name, ())
        given = [promoted(call, x) if n in places else x for n, x in enumerate(arguments)]
        return partwise(call, handler, given)
    unsupported("it has no meaning on complex numbers here")


PRODUCTS = frozenset(("mm", "bmm", "matmul", "linalg_matmul", "mv", "dot", "outer", "ger"))
SUMS_OF_PRODUCTS = frozenset(("addmm", "addmv", "baddbmm", "addbmm", "addr"))

PROMOTED: Mapping[str, Sequence[int]] = MappingProxyType(
    {
        **dict.fromkeys(("cat", "stack", "concat", "concatenate"), (0,)),
        **dict.fromkeys(("full", "full_like", "fill"), (1,)),
        **dict.fromkeys(("constant_pad_nd", "new_full"), (2,)),
        **dict.fromkeys(("slice_scatter", "select_scatter", "diagonal_scatter", "copy"), (1,)),
        "where": (1, 2),
    }
)
"""Indices of arguments that may be real beside complex ones, by operator."""

PARTWISE = frozenset(
    (
        *(*VIEWS, *PARTS, *DIAGONALS, *PROMOTED),
        *("index", "_unsafe_index", "index_select", "gather", "take", "masked_select"),
        *("index_put", "_unsafe_index_put", "masked_scatter", "scatter_add", "put"),
        *(
            "sum",
            "mean",
            "cumsum",
            "neg",
            "_neg_view",
            "clone",
            "alias",
            "detach",
            "lift_fresh_copy",
        ),
        *("positive", "resolve_conj", "resolve_neg"),
        *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty"),
        *("new_empty_strided", "zeros", "zeros_like", "new_zeros"),
    )
)


def made(call: Aten, re: Value, im: Value) -> Value:
    return pair(call, Complex(call.as_value(re, real_type(call.result.dtype)),
                              call.as_value(im, real_type(call.result.dtype))))  # fmt: skip


def polar(call: Aten, size: Value, angle: Value) -> Value:
    return pair(call, Complex(size * of(ew.Cos(), angle), size * of(ew.Sin(), angle)))


def view_as_real(call: Aten, x: Value) -> Value:
    return Value(call, as_parts(call.emitter, x.name))


def view_as_complex(call: Aten, x: Value) -> Value:
    return Value(call, of_parts(call.emitter, x.name))


def to_copy(call: Aten, x: ComplexOperand, *_: object) -> Value:
    """In the type of the result; a real result is the real part."""
    z = operand(call, x)
    return pair(call, z) if call.result.dtype.kind == "complex" else z.re


def conjugate(call: Aten, x: Value) -> Value:
    z = operand(call, x)
    return joined(call, z.re, -z.im)


def real_part(call: Aten, x: Value) -> Value:
    return operand(call, x).re


def imaginary_part(call: Aten, x: Value) -> Value:
    return operand(call, x).im


def absolute(call: Aten, x: Value) -> Value:
    return functions.magnitude(operand(call, x))


def angle(call: Aten, x: Value) -> Value:
    return functions.angle(operand(call, x))


def add(call: Aten, x: ComplexOperand, y: ComplexOperand, alpha: Number | complex = 1) -> Value:
    other = operand(call, y)
    return pair(call, operand(call, x) + (other if alpha == 1 else other * operand(call, alpha)))


def subtract(
    call: Aten, x: ComplexOperand, y: ComplexOperand, alpha: Number | complex = 1
) -> Value:
    return add(call, x, y, -alpha)


def reversed_subtract(
    call: Aten, x: ComplexOperand, y: ComplexOperand, alpha: Number | complex = 1
) -> Value:
    return subtract(call, y, x, alpha)


def power(call: Aten, x: ComplexOperand, y: ComplexOperand) -> Value:
    """A square is a product."""
    base = operand(call, x)
    return pair(call, base * base if y == 2 else functions.power(base, operand(call, y)))


def equality(op: Callable[[], Any], both: Callable[[], Any]) -> Handler:
    """Whether parts are equal, or differ: ``both`` combines the results of both parts."""

    def handler(call: Aten, x: ComplexOperand, y: ComplexOperand) -> Value:
        a, b = (operand(call, z, real_type(call.promoted())) for z in (x, y))
        return of(both(), of(op(), a.re, b.re), of(op(), a.im, b.im))

    return handler


def either(op: Callable[[], Any]) -> Handler:
    """Whether the test holds for either part."""

    def handler(call: Aten, x: Value) -> Value:
        return of(ew.Or(), *(of(op(), part) for part in parts_of(x) or [x, x]))

    return handler


def norm(call: Aten, x: Value, *options: Any) -> Value:
    return vector_norm(call, functions.magnitude(operand(call, x)), *options)


def variance(call: Aten, x: Value, *options: Any) -> Value:
    """The sum of the parts' variances."""
    real, imag = (REDUCTIONS["var.correction"](part_call(call, n), p, *options)
                  for n, p in enumerate(parts_of(x) or [x]))  # fmt: skip
    assert isinstance(real, Value) and isinstance(imag, Value)
    return real + imag


def linear(call: Aten, x: Value, weight: Value, bias: Value | None = None) -> Value:
    found = product(call, products.linear, x, weight)
    return found if bias is None else pair(call, operand(call, found) + operand(call, bias))


def einsum(call: Aten, equation: str, operands: Sequence[Value], path: object = None) -> Result:
    if len(operands) == 1:
        return partwise(call, products.einsum, (equation, operands))
    if len(operands) > 2:
        unsupported("sums of products of more than two complex tensors")

    def of_two(real: Aten, a: Value, b: Value) -> Result:
        return products.einsum(real, equation, (a, b))

    return product(call, of_two, *operands)


def conjugate_product(call: Aten, a: Value, b: Value) -> Value:
    return product(call, products.product, conjugate(call, a), b)


def _unary(function: Callable[[Complex], Complex]) -> Handler:
    def handler(call: Aten, x: ComplexOperand) -> Value:
        return pair(call, function(operand(call, x)))

    return handler


def _binary(function: Callable[[Complex, Complex], Complex]) -> Handler:
    def handler(call: Aten, x: ComplexOperand, y: ComplexOperand) -> Value:
        return pair(call, function(operand(call, x), operand(call, y)))

    return handler


def _scaled_logarithm(base: float) -> Handler:
    return _unary(lambda z: functions.logarithm(z).scaled(1.0 / math.log(base)))


FORMULAS = table(
    **FOURIER,
    **EIGENVALUES,
    complex=made,
    polar=polar,
    view_as_real=view_as_real,
    view_as_complex=view_as_complex,
    _to_copy=to_copy,
    scalar_tensor=to_copy,
    **dict.fromkeys(("conj", "_conj", "conj_physical", "_conj_physical"), conjugate),
    real=real_part,
    imag=imaginary_part,
    abs=absolute,
    angle=angle,
    add=add,
    sub=subtract,
    rsub=reversed_subtract,
    mul=_binary(Complex.__mul__),
    div=_binary(Complex.__truediv__),
    pow=power,
    eq=equality(ew.Equal, ew.And),
    ne=equality(ew.NotEqual, ew.Or),
    isnan=either(ew.IsNaN),
    isinf=either(ew.IsInf),
    linalg_vector_norm=norm,
    var=variance,
    linear=linear,
    einsum=einsum,
    vdot=conjugate_product,
    reciprocal=_unary(lambda z: functions.one(z) / z),
    exp=_unary(functions.exponential),
    expm1=_unary(functions.exponential_less_one),
    log=_unary(functions.logarithm),
    log1p=_unary(functions.logarithm_of_one_more),
    log2=_scaled_logarithm(2.0),
    log10=_scaled_logarithm(10.0),
    sqrt=_unary(functions.root),
    rsqrt=_unary(functions.reciprocal_root),
    sin=_unary(functions.sine),
    cos=_unary(functions.cosine),
    tan=_unary(functions.tangent),
    sinh=_unary(functions.hyperbolic_sine),
    cosh=_unary(functions.hyperbolic_cosine),
    tanh=_unary(functions.hyperbolic_tangent),
    sigmoid=_unary(functions.logistic),
    silu=_unary(lambda z: z * functions.logistic(z)),
    sgn=_unary(functions.direction),
)
