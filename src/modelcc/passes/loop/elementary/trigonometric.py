"""Trigonometric functions and their inverses, for f32 and f64.

The argument is reduced by multiples of pi/2 in f64 (also for f32), whose leading parts are short
enough for their products to be exact without a fused multiply-add, too (W. J. Cody and W. Waite,
"Software Manual for the Elementary Functions", 1980).  That holds for ``|x|`` up to 2^23 (f32) and
2^17 (f64); larger lanes are reduced by :mod:`modelcc.passes.loop.elementary.huge_arguments`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from modelcc.ir.types import F64, I32
from modelcc.passes.loop.elementary.builder import CodeBuilder, Term, polynomial, with_sign_of
from modelcc.passes.loop.elementary.coefficients import ASIN, ATAN, COS, SIN
from modelcc.passes.loop.elementary.huge_arguments import reduced_huge

_MAGIC = 1.5 * 2.0**52
_HALF_PI = {
    32: (1.570796325802803, 9.920935796805404e-10),
    64: (1.5707963267923333, 2.5633441512663184e-12, 3.2820035428735005e-22),
}
"""Parts of pi/2; all but the last have 30 (f32) and 36 bits (f64)."""
LARGEST_USUAL = {32: 2.0**23, 64: 2.0**17}
"""Largest ``|x|`` for whose multiple of pi/2 the products with these parts are exact."""


_Function = Callable[[CodeBuilder, Term, Term], Term]
"""A function of an angle within pi/4 of 0 and the quadrant in an integer's low bits."""


def _of_any(b: CodeBuilder, x: Term, function: _Function, quarter: int = 0) -> Term:
    """``function`` of ``x`` and a number of quarters; NaN where ``x`` is not finite."""
    x = b.let(x)
    a = b.let(x.call("abs"))
    bound = LARGEST_USUAL[x.dtype.bits]
    huge = b.let(a > bound)

    def of_finite(x: Term) -> Term:
        r, quadrant = reduced_huge(b, x)
        quadrant = b.let(quadrant + quarter) if quarter else quadrant
        return function(b, r, quadrant)

    def of_huge() -> Term:
        finite = b.let(x.where(b.let(huge & (a < math.inf)), 2 * bound))
        return of_finite(finite).where(a < math.inf, math.nan)

    usual = function(b, *_usual(b, x, _MAGIC + quarter))
    if b.arrays:
        return b.corrected(usual, huge, of_huge)
    # Lanes that are not finite are NaN already; one lane at a time takes the fewest registers.
    return b.corrected_each(usual, b.let(huge & (a < math.inf)), x, of_finite)


def _usual(b: CodeBuilder, x: Term, magic: float) -> tuple[Term, Term]:
    wide = b.let(x.to(F64))
    t = b.let(wide.times(2 / math.pi, magic))
    n = b.let(t - magic)
    r = wide
    for part in _HALF_PI[x.dtype.bits]:
        r = n.times(-part, r)
    return b.let(r.to(x.dtype)), b.let(t.bits if x.dtype == F64 else t.bits.to(I32))


def _sine_cosine(b: CodeBuilder, r: Term) -> tuple[Term, Term]:
    z = b.let(r * r)
    sine = (r * z).times(polynomial(z, SIN[r.dtype.bits]), r)
    cosine = (z * z).times(polynomial(z, COS[r.dtype.bits]), z.times(-0.5, 1.0))
    return b.let(sine), b.let(cosine)


def _sine(b: CodeBuilder, r: Term, quadrant: Term) -> Term:
    sine, cosine = _sine_cosine(b, r)
    top = quadrant.dtype.bits - 1
    sign = (quadrant << (top - 1)) & -(1 << top)
    return (cosine.where((quadrant & 1).differs(0), sine).bits ^ sign).as_float


def _tangent(b: CodeBuilder, r: Term, quadrant: Term) -> Term:
    sine, cosine = _sine_cosine(b, r)
    odd = b.let((quadrant & 1).differs(0))
    return cosine.where(odd, sine) / (-sine).where(odd, cosine)


def sin(b: CodeBuilder, x: Term) -> Term:
    """Sine of ``x`` in radians."""
    return _of_any(b, x, _sine)


def cos(b: CodeBuilder, x: Term) -> Term:
    """Cosine of ``x`` in radians."""
    return _of_any(b, x, _sine, 1)


def tan(b: CodeBuilder, x: Term) -> Term:
    """Tangent of ``x`` in radians."""
    return _of_any(b, x, _tangent)


def _arc_sine(b: CodeBuilder, x: Term) -> tuple[Term, Term]:
    """asin(|x|) for ``|x| <= 1/2``, else asin(sqrt((1 - |x|)/2)); and whether it is the latter."""
    a = b.let(x.call("abs"))
    big = b.let(a > 0.5)
    z = b.let(((1.0 - a) * 0.5).where(big, a * a))
    s = b.let(z.call("sqrt").where(big, a))
    return b.let((s * z).times(polynomial(z, ASIN[x.dtype.bits]), s)), big


def asin(b: CodeBuilder, x: Term) -> Term:
    """Inverse sine; NaN outside [-1, 1]."""
    p, big = _arc_sine(b, x)
    return with_sign_of(p.times(-2.0, math.pi / 2).where(big, p), x)


def acos(b: CodeBuilder, x: Term) -> Term:
    """Inverse cosine; NaN outside [-1, 1]."""
    x = b.let(x)
    p, big = _arc_sine(b, x)
    negative = b.let(x < 0.0)
    outer = p.times(-2.0, math.pi).where(negative, p + p)
    return outer.where(big, math.pi / 2 - (-p).where(negative, p))


def atan(b: CodeBuilder, x: Term) -> Term:
    """Inverse tangent: ``pi/2 - atan(1/|x|)`` where ``|x| > 1``."""
    a = b.let(x.call("abs"))
    big = b.let(a > 1.0)
    y = b.let((1.0 / a).where(big, a))
    z = b.let(y * y)
    p = b.let((y * z).times(polynomial(z, ATAN[x.dtype.bits]), y))
    return with_sign_of((math.pi / 2 - p).where(big, p), x)
