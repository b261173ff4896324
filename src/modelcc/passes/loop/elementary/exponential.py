"""exp and functions based on it, for f32 and f64.

``exp(x) = 2^n exp(r)`` with ``n = round(x / ln 2)`` and ``|r| <= ln(2)/2`` (Cody & Waite, *Software
Manual for the Elementary Functions*, 1980).  Adding a large number rounds to an integer and leaves
``n`` in the low bits, which a shift moves into the exponent of ``2^(n-1)``.  Results below the
normal numbers are 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from modelcc.ir.types import F32, DType
from modelcc.passes.loop.elementary.builder import CodeBuilder, Term, polynomial, with_sign_of
from modelcc.passes.loop.elementary.coefficients import EXP, EXP2, LOGISTIC, SINH


@dataclass(frozen=True)
class _ExponentFormat:
    """Constants of a float format; ``ln2_high`` has enough trailing zeros for exact products."""

    mantissa: int
    bias: int
    ln2_high: float
    ln2_low: float

    def magic(self, exponent: int) -> float:
        """Adding it to ``n`` leaves ``n + bias + exponent`` in the low bits."""
        return 1.5 * 2.0**self.mantissa + self.bias + exponent


_SINGLE = _ExponentFormat(23, 127, 0.693359375, -2.12194440e-4)
_DOUBLE = _ExponentFormat(52, 1023, 6.93147180369123816490e-01, 1.90821492927058770002e-10)


def _format(dtype: DType) -> _ExponentFormat:
    return _SINGLE if dtype == F32 else _DOUBLE


def _reduced(b: CodeBuilder, x: Term, exponent: int = -1) -> tuple[Term, Term]:
    """``r`` and ``2^(n + exponent)`` for ``x = n ln 2 + r`` within the exponent's range."""
    form = _format(x.dtype)
    magic = form.magic(exponent)
    t = b.let(x.times(1 / math.log(2), magic))
    n = b.let(t - magic)
    r = b.let(n.times(-form.ln2_low, n.times(-form.ln2_high, x)))
    return r, b.let((t.bits << form.mantissa).as_float)


def _clamped(b: CodeBuilder, x: Term) -> Term:
    bias = _format(x.dtype).bias
    low, high = -(bias - 0.8) * math.log(2), (bias + 1.4) * math.log(2)
    return b.let(x.at_least(low).at_most(high))


def exp(b: CodeBuilder, x: Term) -> Term:
    """e^x."""
    r, half_scale = _reduced(b, _clamped(b, x))
    doubled = [2.0, 2.0, *(2 * c for c in EXP[x.dtype.bits])]
    return polynomial(r, doubled) * half_scale


def half_exp(b: CodeBuilder, x: Term) -> Term:
    """e^x / 2 for ``x >= 0``, finite where that is."""
    x = b.let(x.at_most((_format(x.dtype).bias + 2.4) * math.log(2)))
    r, quarter_scale = _reduced(b, x, -2)
    doubled = [2.0, 2.0, *(2 * c for c in EXP[x.dtype.bits])]
    return polynomial(r, doubled) * quarter_scale


def exp2(b: CodeBuilder, x: Term) -> Term:
    """2^x."""
    form = _format(x.dtype)
    x = b.let(x.at_least(-(form.bias - 0.6)).at_most(form.bias + 1.9))
    magic = form.magic(-1)
    t = b.let(x + magic)
    r = b.let(x - (t - magic))
    doubled = [2.0, *(2 * c for c in EXP2[x.dtype.bits])]
    return polynomial(r, doubled) * (t.bits << form.mantissa).as_float


def expm1(b: CodeBuilder, x: Term) -> Term:
    """e^x - 1 without cancellation: ``2 (s (e^r - 1) + s - 1/2)`` with ``s = 2^(n-1)``."""
    r, half_scale = _reduced(b, _clamped(b, x))
    q = (r * r).times(polynomial(r, EXP[x.dtype.bits]), r)
    return 2.0 * half_scale.times(q, half_scale - 0.5)


def sigmoid(b: CodeBuilder, x: Term) -> Term:
    """1 / (1 + e^-x)."""
    return 1.0 / inverse_sigmoid(b, x)


def inverse_sigmoid(b: CodeBuilder, x: Term) -> Term:
    """1 + e^-x: ``1 + 2^n exp(-r)`` with ``r = x + n ln 2``, its last step one multiply-add.

    Adding 1 hides part of the error of ``exp(-r)``, so a shorter polynomial suffices.
    """
    form = _format(x.dtype)
    x = b.let(x.at_least(-(form.bias + 1.4) * math.log(2)).at_most((form.bias + 0.4) * math.log(2)))
    t = b.let(x.times(-1 / math.log(2), form.magic(0)))
    n = b.let(t - form.magic(0))
    r = b.let(n.times(form.ln2_low, n.times(form.ln2_high, x)))
    scale = (t.bits << form.mantissa).as_float
    return polynomial(r, [1.0, *LOGISTIC[x.dtype.bits]]).times(scale, 1.0)


def tanh(b: CodeBuilder, x: Term) -> Term:
    """Hyperbolic tangent: ``t / (t + 2)`` with ``t = e^(2|x|) - 1``."""
    if x.dtype == F32:
        return _tanh_single(b, x)
    a = b.let(x.call("abs").at_most(22.0))
    t = b.let(expm1(b, b.let(a + a)))
    return with_sign_of(t / (t + 2.0), x)


# Rational minimax approximations of tanh(x) / x in x^2, for |x| below saturation; the
# coefficients are those of Eigen's and XLA's implementations, divided by the first of the
# denominator: so the quotient is exactly 1 at the bound, and never more below, with and without
# fused multiply-adds.  1 - tanh(x)^2 is then exactly 0 beyond.
_TANH_FIRST = 4.89352518554385e-03
_TANH_NUMERATOR = tuple(c / _TANH_FIRST for c in (
    4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05, 5.12229709037114e-08,
    -8.60467152213735e-11, 2.00018790482477e-13, -2.76076847742355e-16,
))  # fmt: skip
_TANH_DENOMINATOR = tuple(c / _TANH_FIRST for c in (
    _TANH_FIRST, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06,
))  # fmt: skip
_TANH_BOUND = 7.9989142417907715


def _tanh_single(b: CodeBuilder, x: Term) -> Term:
    """Division is the last operation, so that no unrounded product is contracted into a sum."""
    x = b.let(x.at_least(-_TANH_BOUND).at_most(_TANH_BOUND))
    z = b.let(x * x)
    return x * polynomial(z, _TANH_NUMERATOR) / polynomial(z, _TANH_DENOMINATOR)


def sinh(b: CodeBuilder, x: Term) -> Term:
    """Hyperbolic sine: ``e^|x|/2 - e^-|x|/2``, a polynomial for ``|x| < 1``."""
    a = b.let(x.call("abs"))
    e = b.let(half_exp(b, a))
    z = b.let(x * x)
    small = (a * z).times(polynomial(z, SINH[x.dtype.bits]), a)
    return with_sign_of(small.where(a < 1.0, e - 0.25 / e), x)


def cosh(b: CodeBuilder, x: Term) -> Term:
    """Hyperbolic cosine: ``e^|x|/2 + e^-|x|/2``."""
    e = b.let(half_exp(b, b.let(x.call("abs"))))
    return e + 0.25 / e
