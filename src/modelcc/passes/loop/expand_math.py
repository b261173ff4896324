"""Expands elementary functions into arithmetic in vector registers.

    let %y = exp(%x)                  // 16 lanes of f32

becomes::

    let %math0 = min(89.6946, max(-87.4752, %x))
    let %math1 = muladd(%math0, 1.442695, 12583038.0)
    …
    let %y = mul(muladd(…), bitcast[f32](shl(bitcast[i32](%math1), 23)))

Largest errors in units in the last place, measured against twice the precision over the whole
range (means are 0.2 to 0.4, for ``tanh`` in f32 1.3; :data:`MAX_ULP` holds the tests' bounds)::

    function   f32   f64      function   f32   f64      function   f32   f64
    exp        0.9   0.9      log        0.8   0.8      sin        1.5   1.5
    exp2       1.0   0.9      log1p      0.8   0.8      cos        1.5   1.6
    expm1      1.6   1.7      asinh      1.7   1.7      tan        3.4   3.5
    sigmoid    3.6   2.4      acosh      2.1   1.7      asin       2.3   2.1
    tanh       5.2   2.4      atanh      1.9   1.8      acos       1.3   1.2
    sinh       1.6   1.6      erf        6.5   1.0      atan       1.7   1.7
    cosh       1.4   1.3

The errors of ``tanh`` and ``erf`` in f32 are 3.2e-7 and 4e-7 at most.  ``exp`` and ``exp2`` give 0
where the result is not a normal number.  ``sin``, ``cos`` and ``tan`` have these errors up to the
largest number; vectors with a lane beyond 2^23 (f32) or 2^17 (f64) are slower.  ``pow`` in f32 is
rounded once, in f64 its relative error is up to 1e-13.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from modelcc.ir.loop import Const, Expr, Function, Reduce, ScalarCall, Select, Splat, Stmt
from modelcc.ir.loop_traversal import (
    map_blocks,
    mentions,
    operands,
    statement_expressions,
    with_operands,
    with_statement_expressions,
)
from modelcc.ir.scalar import MAY_LOSE_NAN
from modelcc.ir.types import BF16, BOOL, F16, F32, F64, DType
from modelcc.passes.loop.elementary.builder import Term, builder_for
from modelcc.passes.loop.elementary.error_function import erf
from modelcc.passes.loop.elementary.exponential import (
    cosh,
    exp,
    exp2,
    expm1,
    inverse_sigmoid,
    sigmoid,
    sinh,
    tanh,
)
from modelcc.passes.loop.elementary.logarithm import acosh, asinh, atanh, log, log1p
from modelcc.passes.loop.elementary.power import constant_pow, fmod, integer_pow, mod, pow
from modelcc.passes.loop.elementary.trigonometric import acos, asin, atan, cos, sin, tan

Expansion = Callable[..., Term]

EXPANSIONS: Mapping[str, Expansion] = MappingProxyType(
    {
        f.__name__: f
        for f in (
            *(exp, exp2, expm1, sigmoid, tanh, sinh, cosh, erf),
            *(log, log1p, asinh, acosh, atanh),
            *(sin, cos, tan, asin, acos, atan),
            *(fmod, mod),
        )
    }
)
"""Expansions of float functions with one or two operands; ``pow`` has special ones."""

_BOTH = {
    "exp": 1.0, "exp2": 1.0, "expm1": 2.0, "tanh": 3.0, "sinh": 2.0, "cosh": 2.0, "log": 1.0,
    "log1p": 1.0, "asinh": 2.0, "acosh": 2.5, "atanh": 2.5, "erf": 1.0, "sin": 2.0, "cos": 2.0,
    "tan": 4.0, "asin": 2.5, "acos": 1.5, "atan": 2.0, "sigmoid": 4.0,
}  # fmt: skip
MAX_ULP: Mapping[int, Mapping[str, float]] = MappingProxyType(
    {32: MappingProxyType({**_BOTH, "tanh": 5.5, "erf": 7.0}), 64: MappingProxyType(_BOTH)}
)
"""Error bounds of functions by width in bits, in units in the last place, with fused
multiply-adds."""
ROUNDED_TWICE = 1.25
"""Factor of the bounds on processors without a fused multiply-add."""


def expand_math(function: Function, arrays: bool = True) -> Function:
    """``function`` without calls of elementary functions; f16 and bf16 are computed in f32.

    Without ``arrays``, local arrays are replaced by selects.
    """
    if not mentions(function.body, _expands):
        return function
    return replace(function, body=_MathExpander(function, arrays).block(function.body))


def _expands(e: Expr) -> bool:
    if isinstance(e, Reduce):
        return e.function in MAY_LOSE_NAN
    if not isinstance(e, ScalarCall):
        return False
    simple = e.function == "pow" or e.function in MAY_LOSE_NAN
    return simple or (e.function in EXPANSIONS and e.dtype.is_float)


class _MathExpander:
    def __init__(self, function: Function, arrays: bool) -> None:
        self._builder = builder_for(function, "math", arrays)
        self._known: dict[Expr, Expr] = {}

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements, each after the ones it now depends on."""
        result: list[Stmt] = []
        for s in body:
            self._known = {}
            expressions = [self._expression(e) for e in statement_expressions(s)]
            result += self._builder.take()
            result.append(map_blocks(with_statement_expressions(s, expressions), self.block))
        return tuple(result)

    def _expression(self, e: Expr) -> Expr:
        gate = _gate(e)
        if gate is not None:
            x, y = (Term(self._expression(part)) for part in gate)
            divisor = self._in_single(inverse_sigmoid, [y])
            return (x / self._builder.let(divisor)).expr
        inner = operands(e)
        if not inner:
            return e
        e = with_operands(e, [self._expression(o) for o in inner])
        if not isinstance(e, ScalarCall | Reduce) or not _expands(e):
            return e
        if e.function in MAY_LOSE_NAN:
            return self._of_lanes(e) if isinstance(e, Reduce) else self._of_two(e)
        assert isinstance(e, ScalarCall)
        result = self._known.get(e)
        if result is None:
            result = self._known[e] = self._builder.let(self._call(e)).expr
        return result

    def _of_two(self, e: ScalarCall) -> Expr:
        """The first operand where it is NaN: machines' extremes return the second then."""
        first = self._builder.let(Term(e.args[0])).expr
        is_nan = ScalarCall("isnan", (first,), BOOL, e.lanes)
        plain = ScalarCall(MAY_LOSE_NAN[e.function], (first, e.args[1]), e.dtype, e.lanes)
        return Select(is_nan, first, plain)

    def _of_lanes(self, e: Reduce) -> Expr:
        value = self._builder.let(Term(e.value)).expr
        is_nan = Reduce("or", ScalarCall("isnan", (value,), BOOL, value.lanes))
        return Select(is_nan, Const(math.nan, e.dtype), Reduce(MAY_LOSE_NAN[e.function], value))

    def _call(self, e: ScalarCall) -> Term:
        args = [Term(a) for a in e.args]
        if e.function == "pow":
            return self._pow(args[0], args[1])
        return self._in_single(EXPANSIONS[e.function], args)

    def _pow(self, x: Term, y: Term) -> Term:
        if x.dtype.is_integer:
            return integer_pow(self._builder, x, y)
        exponent = y.expr.value if isinstance(y.expr, Splat) else y.expr
        if isinstance(exponent, Const):
            power = constant_pow(self._builder, x, float(exponent.value))
            if power is not None:
                return power
        return self._in_single(pow, [x, y])

    def _in_single(self, expansion: Expansion, args: list[Term]) -> Term:
        """The expansion on named f32 or f64 operands."""
        dtype = args[0].dtype
        let = self._builder.let
        wide: list[Term] = [let(let(a).to(_compute_dtype(dtype))) for a in args]
        return expansion(self._builder, *wide).to(dtype)


def _gate(e: Expr) -> tuple[Expr, Expr] | None:
    """``x, y`` of ``x * sigmoid(y)``, computed as ``x / (1 + e^-y)``, which saves a product."""
    if not (isinstance(e, ScalarCall) and e.function == "mul" and e.dtype in (F32, F64)):
        return None
    match e.args:
        case (x, ScalarCall(function="sigmoid", args=(y,))) | (
            ScalarCall(function="sigmoid", args=(y,)),
            x,
        ):
            return x, y
        case _:
            return None


def _compute_dtype(dtype: DType) -> DType:
    return F32 if dtype in (F16, BF16) else dtype
