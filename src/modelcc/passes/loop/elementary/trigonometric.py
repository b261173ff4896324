"""Trigonometric functions and their inverses, for f32 and f64.

The argument is reduced by multiples of pi/2 in f64 (also for f32): in two parts for f32 results,
in three for f64 ones.  This is exact to rounding for ``|x|`` below 2^40 (f32) and 2^28 (f64);
beyond, errors grow in proportion to ``|x|`` until the result is an arbitrary number in range.
"""

from __future__ import annotations

import math

from modelcc.ir.types import F32, F64, I32
from modelcc.passes.loop.elementary.builder import Builder, Value, polynomial, with_sign_of
from modelcc.passes.loop.elementary.coefficients import ASIN, ATAN, COS, SIN

_MAGIC = 1.5 * 2.0**52
_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)


def _reduced(b: Builder, x: Value) -> tuple[Value, Value]:
    """``r`` within pi/4 of 0, and the quadrant in an integer's low bits."""
    wide = b.let(x.to(F64))
    t = b.let(wide.times(2 / math.pi, _MAGIC))
    n = b.let(t - _MAGIC)
    r = wide
    for part in _HALF_PI[: 2 if x.dtype == F32 else 3]:
        r = n.times(-part, r)
    quadrant = t.bits if x.dtype == F64 else t.bits.to(I32)
    return b.let(r.to(x.dtype).at_least(-0.8).at_most(0.8)), b.let(quadrant)


def _sine_cosine(b: Builder, r: Value) -> tuple[Value, Value]:
    z = b.let(r * r)
    sine = (r * z).times(polynomial(z, SIN[r.dtype.bits]), r)
    cosine = (z * z).times(polynomial(z, COS[r.dtype.bits]), z.times(-0.5, 1.0))
    return b.let(sine), b.let(cosine)


def _from_quadrant(quadrant: Value, sine: Value, cosine: Value) -> Value:
    value = cosine.where((quadrant & 1).differs(0), sine)
    sign = (quadrant & 2) << (sine.dtype.bits - 2)
    return (value.bits ^ sign).as_float


def sin(b: Builder, x: Value) -> Value:
    """Sine of ``x`` in radians."""
    r, quadrant = _reduced(b, x)
    return _from_quadrant(quadrant, *_sine_cosine(b, r))


def cos(b: Builder, x: Value) -> Value:
    """Cosine of ``x`` in radians."""
    r, quadrant = _reduced(b, x)
    return _from_quadrant(b.let(quadrant + 1), *_sine_cosine(b, r))


def tan(b: Builder, x: Value) -> Value:
    """Tangent of ``x`` in radians."""
    r, quadrant = _reduced(b, x)
    sine, cosine = _sine_cosine(b, r)
    odd = b.let((quadrant & 1).differs(0))
    return cosine.where(odd, sine) / (-sine).where(odd, cosine)


def _arc_sine(b: Builder, x: Value) -> tuple[Value, Value]:
    """asin(|x|) for ``|x| <= 1/2``, else asin(sqrt((1 - |x|)/2)); and whether it is the latter."""
    a = b.let(x.call("abs"))
    big = b.let(a > 0.5)
    z = b.let(((1.0 - a) * 0.5).where(big, a * a))
    s = b.let(z.call("sqrt").where(big, a))
    return b.let((s * z).times(polynomial(z, ASIN[x.dtype.bits]), s)), big


def asin(b: Builder, x: Value) -> Value:
    """Inverse sine; NaN outside [-1, 1]."""
    p, big = _arc_sine(b, x)
    return with_sign_of(p.times(-2.0, math.pi / 2).where(big, p), x)


def acos(b: Builder, x: Value) -> Value:
    """Inverse cosine; NaN outside [-1, 1]."""
    x = b.let(x)
    p, big = _arc_sine(b, x)
    negative = b.let(x < 0.0)
    outer = p.times(-2.0, math.pi).where(negative, p + p)
    return outer.where(big, math.pi / 2 - (-p).where(negative, p))


def atan(b: Builder, x: Value) -> Value:
    """Inverse tangent: ``pi/2 - atan(1/|x|)`` where ``|x| > 1``."""
    a = b.let(x.call("abs"))
    big = b.let(a > 1.0)
    y = b.let((1.0 / a).where(big, a))
    z = b.let(y * y)
    p = b.let((y * z).times(polynomial(z, ATAN[x.dtype.bits]), y))
    return with_sign_of((math.pi / 2 - p).where(big, p), x)
