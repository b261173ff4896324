"""Powers and remainders.

In f32 they are computed in f64, which leaves one rounding.
"""

from __future__ import annotations

import math

from modelcc.ir.index import Index
from modelcc.ir.loop import IndexOf, Splat
from modelcc.ir.types import F32, F64, I64
from modelcc.passes.loop.elementary.builder import CodeBuilder, Term
from modelcc.passes.loop.elementary.exponential import exp
from modelcc.passes.loop.elementary.logarithm import log

_LARGEST_UNROLLED = 16


def pow(b: CodeBuilder, x: Term, y: Term) -> Term:
    """``x ** y`` as C's ``pow`` defines it, for floats."""
    if x.dtype == F32:
        return pow(b, b.let(x.to(F64)), b.let(y.to(F64))).to(F32)
    x, y = b.let(x), b.let(y)
    a = b.let(x.call("abs"))
    magnitude = exp(b, b.let(y * log(b, a)))
    whole = b.let(y.call("floor").equal(y))
    half = b.let(y * 0.5)
    odd = whole & half.call("floor").differs(half)
    sign = x.bits & -(1 << 63)
    signed = (magnitude.bits ^ sign.where(odd, 0)).as_float
    undefined = (x < 0.0) & (x > -math.inf) & whole.call("not")
    result = x.number(math.nan).where(undefined, signed)
    is_one = x.equal(1.0) | y.equal(0.0) | (a.equal(1.0) & y.call("isinf"))
    return x.number(1.0).where(is_one, result)


def constant_pow(b: CodeBuilder, x: Term, exponent: float) -> Term | None:
    """``x ** exponent`` by products and roots, None for an exponent that needs :func:`pow`."""
    if exponent in (0.5, -0.5):
        return x.call("sqrt" if exponent > 0 else "rsqrt")
    if not abs(exponent) <= _LARGEST_UNROLLED or exponent != int(exponent):
        return None
    power = b.let(x)
    result: Term | None = None
    bits = abs(int(exponent))
    while bits:
        if bits & 1:
            result = power if result is None else b.let(result * power)
        bits >>= 1
        if bits:
            power = b.let(power * power)
    if result is None:
        return x.number(1)
    return 1.0 / result if exponent < 0 else result


def integer_pow(b: CodeBuilder, x: Term, y: Term) -> Term:
    """``x ** y`` of integers by repeated squaring, wrapping; 0 where it would be a fraction."""
    x, y = b.let(x), b.let(y)
    last = b.let(y & 1)
    unit = b.let(x.equal(1) | x.equal(-1)) if x.dtype.kind == "int" else b.let(x.equal(1))
    small = b.let(last.where(unit, y))
    exponent = b.let(small.where((y < 0).call("not"), last) if x.dtype.kind == "int" else small)
    result, power = x.number(1), x
    for bit in range(min(x.dtype.bits - 1, 6)):
        set_ = (exponent & (1 << bit)).differs(0)
        result = b.let((result * power).where(set_, result))
        power = b.let(power * power)
    if x.dtype.kind == "int":
        return result.where((y < 0).call("not") | unit, 0)
    return result


def fmod(b: CodeBuilder, x: Term, y: Term) -> Term:
    """Remainder with the sign of ``x``, exact; vectors with a quotient above 2^50 are slower."""
    steps = _STEPS[x.dtype.bits]
    if x.dtype == F32:
        return _fmod(b, b.let(x.to(F64)), b.let(y.to(F64)), steps).to(F32)
    return _fmod(b, b.let(x), b.let(y), steps)


_STEP = 17
_STEPS = {32: 5, 64: 41}
"""Steps of 2^(3 * 17) from 2^51 to the quotient of the greatest and the least float."""


def _fmod(b: CodeBuilder, x: Term, y: Term, steps: int) -> Term:
    a, d = b.let(x.call("abs")), b.let(y.call("abs"))
    huge = b.let(a.call("ge", d * 2.0**50) & (a < math.inf) & (d > 0.0))
    a = b.let(b.corrected(a, huge, lambda: _folded(b, a, d, steps)))
    inside = a.where(d.equal(math.inf) & (a < math.inf), _remainder(b, a, d))
    sign = x.bits & -(1 << 63)
    return (inside.bits ^ sign).as_float


def _folded(b: CodeBuilder, a: Term, d: Term, steps: int) -> Term:
    """``a`` modulo ``d 2^(51 k)`` for k from ``steps`` down to 1, which does not change ``a``
    modulo ``d``; no quotient is above 2^51."""

    def step(rest: Term, number: Index) -> Term:
        exponent = IndexOf((1023 + _STEP * steps) - number * _STEP, I64)
        bits = Term(Splat(exponent, a.lanes) if a.lanes > 1 else exponent) << 52
        power = b.let(bits.as_float)
        divisor = b.let(d * power * power * power)
        fits = divisor.call("le", rest)
        return _remainder(b, rest, divisor).where(fits, rest)

    return b.repeated(a, steps, step)


def _remainder(b: CodeBuilder, a: Term, d: Term) -> Term:
    """The remainder of non-negative numbers with a quotient below 2^52."""
    rest = _rest(b, a, d, b.let((a / d).call("trunc")))
    rest = b.let((rest + d).where(rest < 0.0, rest))
    return (rest - d).where(rest.call("ge", d), rest)


def _rest(b: CodeBuilder, a: Term, d: Term, quotient: Term) -> Term:
    """``a - quotient * d`` without a rounding error, with or without a fused multiply-add.

    Both factors are split in two, so that all products are exact, and so are all differences in
    this order: the remainder of ``a`` loses leading digits as it gains trailing ones.
    """
    upper = b.let((d.bits & -(1 << 27)).as_float)
    lower = b.let(d - upper)
    high = b.let((quotient * 2.0**-26).call("trunc") * 2.0**26)
    low = b.let(quotient - high)
    rest = a
    for part, factor in ((high, upper), (low, upper), (high, lower), (low, lower)):
        rest = (-part).times(factor, rest)
    return b.let(rest)


def mod(b: CodeBuilder, x: Term, y: Term) -> Term:
    """Remainder with the sign of ``y``."""
    y = b.let(y)
    rest = b.let(fmod(b, x, y))
    moved = rest.differs(0.0) & ((rest < 0.0) ^ (y < 0.0))
    return (rest + y).where(moved, rest)
