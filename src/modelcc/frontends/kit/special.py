"""Special functions composed of simpler ops, for f64 operands.

Narrower operands are to be converted first; the result is then accurate after rounding.
"""

from __future__ import annotations

import math

from modelcc.frontends.kit import special_coefficients as table
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import above, where

BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
"""B2, B4 … of asymptotic series."""
SHIFT = 10
"""Argument from which these series are accurate enough."""
INFINITE = float("inf")


def polynomial(coefficients: tuple[float, ...], x: Value) -> Value:
    """By Horner's rule; constant term first."""
    result = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        result = result * x + coefficient
    return result


def below(x: Value, bound: float) -> Value:
    """Where ``x < bound``."""
    return of(ew.Less(), x, x.lift(bound))


def square(x: Value) -> Value:
    return x * x


# --- the error function ----------------------------------------------------------------------


def _scaled_tail(x: Value) -> Value:
    """``exp(x^2) erfc(x)`` for ``x >= 0``."""
    u = where(of(ew.IsInf(), x), 1.0, (x - 3.75) / (x + 3.75))
    return polynomial(table.ERFCX, u) / (x * 2.0 + 1.0)


def erfcx(x: Value) -> Value:
    """``exp(x^2) erfc(x)``."""
    tail = _scaled_tail(of(ew.Abs(), x))
    return where(below(x, 0.0), of(ew.Exp(), x * x) * 2.0 - tail, tail)


def erfc(x: Value) -> Value:
    """``1 - erf(x)``, accurate where that is small."""
    tail = of(ew.Exp(), -(x * x)) * _scaled_tail(of(ew.Abs(), x))
    return where(below(x, 0.0), 2.0 - tail, tail)


def _inverse_ratio(w: Value) -> Value:
    """``erfinv(y) / y`` by ``w = -log(1 - y^2)``."""
    s = of(ew.Sqrt(), w)
    near = polynomial(table.ERFINV_INNER, w / 3.125 - 1.0)
    middle = polynomial(table.ERFINV_MIDDLE, (s - 3.25) / 0.75)
    far = polynomial(table.ERFINV_OUTER, (s - 15.5) / 11.5)
    outer = where(below(s, 4.0), middle, far)
    return where(of(ew.IsInf(), w), INFINITE, where(below(w, 6.25), near, outer))


def erfinv(y: Value) -> Value:
    """The inverse of erf; infinite at -1 and 1."""
    return y * _inverse_ratio(-of(ew.Log(), (1.0 - y) * (y + 1.0)))


def ndtri(p: Value) -> Value:
    """The quantile of the normal distribution."""
    w = -of(ew.Log(), p * (1.0 - p) * 4.0)
    return (p * 2.0 - 1.0) * _inverse_ratio(w) * math.sqrt(2.0)


# --- the gamma function ----------------------------------------------------------------------


def _shifted(a: Value) -> tuple[Value, Value]:
    """``a``, and ``a`` shifted up by :data:`SHIFT` if it is below that."""
    small = below(a, float(SHIFT))
    return where(small, a, float(SHIFT)), where(small, a + float(SHIFT), a)


def lgamma(x: Value) -> Value:
    """``log |gamma(x)|`` by Stirling's series, and by reflection below 1/2."""
    reflected = below(x, 0.5)
    a = where(reflected, 1.0 - x, x)
    few, b = _shifted(a)
    terms = tuple(c / ((2 * k + 2) * (2 * k + 1)) for k, c in enumerate(BERNOULLI))
    tail = polynomial(terms, 1.0 / square(b)) / b
    whole = (b - 0.5) * of(ew.Log(), b) - b + tail + 0.5 * math.log(2 * math.pi)
    rising = few
    for i in range(1, SHIFT):
        rising = rising * (few + float(i))
    whole = where(below(a, float(SHIFT)), whole - of(ew.Log(), rising), whole)
    sine = of(ew.Abs(), of(ew.Sin(), (x - of(ew.Round(), x)) * math.pi))
    mirrored = math.log(math.pi) - of(ew.Log(), sine) - whole
    return where(of(ew.IsInf(), x), INFINITE, where(reflected, mirrored, whole))


def polygamma(n: int, x: Value) -> Value:
    """The n-th derivative of digamma: asymptotic series, recurrence, reflection below 1/2."""
    reflected = below(x, 0.5)
    a = where(reflected, 1.0 - x, x)
    few, b = _shifted(a)
    sign = -1.0 if n % 2 == 0 else 1.0
    inverse = 1.0 / b
    terms = tuple(
        sign * c * math.factorial(2 * k + n + 1) / math.factorial(2 * k + 2)
        for k, c in enumerate(BERNOULLI)
    )
    power = of(ew.Pow(), inverse, inverse.lift(float(n)))
    tail = polynomial(terms, square(inverse)) * square(inverse) * power
    half = inverse * power * (sign * math.factorial(n) / 2)
    lead = of(ew.Log(), b) if n == 0 else power * (sign * math.factorial(n - 1))
    whole = lead + half + tail
    steps = 1.0 / few if n == 0 else of(ew.Pow(), few, few.lift(-1.0 - n))
    for i in range(1, SHIFT):
        steps = steps + of(ew.Pow(), few + float(i), few.lift(-1.0 - n))
    whole = where(below(a, float(SHIFT)), whole + steps * (sign * math.factorial(n)), whole)
    return where(reflected, whole * (-sign) - _cotangent(n, x) * math.pi, whole)


def _cotangent(n: int, x: Value) -> Value:
    """The n-th derivative of ``cot(pi x)``, a polynomial of it: ``c' = -pi (1 + c^2)``."""
    c = 1.0 / of(ew.Tan(), (x - of(ew.Round(), x)) * math.pi)
    terms = [0.0, 1.0]
    for _ in range(n):
        slopes = [k * t for k, t in enumerate(terms)][1:]
        terms = [0.0] * (len(slopes) + 2)
        for k, slope in enumerate(slopes):
            terms[k] -= math.pi * slope
            terms[k + 2] -= math.pi * slope
    return polynomial(tuple(terms), c)


# --- Bessel functions ------------------------------------------------------------------------


def i0e(x: Value) -> Value:
    """``exp(-|x|) I0(x)``."""
    a = of(ew.Abs(), x)
    far = polynomial(table.I0_OUTER, 16.0 / a - 1.0) / of(ew.Sqrt(), a)
    return where(above(a, 8.0), far, polynomial(table.I0_INNER, a * 0.25 - 1.0))


def i1e(x: Value) -> Value:
    """``exp(-|x|) I1(x)``."""
    a = of(ew.Abs(), x)
    far = polynomial(table.I1_OUTER, 16.0 / a - 1.0) / of(ew.Sqrt(), a)
    found = where(above(a, 8.0), far, polynomial(table.I1_INNER, a * 0.25 - 1.0) * a)
    return where(below(x, 0.0), -found, found)


def i0(x: Value) -> Value:
    return i0e(x) * of(ew.Exp(), of(ew.Abs(), x))


def i1(x: Value) -> Value:
    return i1e(x) * of(ew.Exp(), of(ew.Abs(), x))


def k0(x: Value, scaled: bool = False) -> Value:
    """K0, times ``exp(x)`` if ``scaled``; NaN below zero."""
    u, log = square(x) * 0.5 - 1.0, of(ew.Log(), x * 0.5)
    return _k(x, polynomial(table.K0_INNER, u) - log * i0(x), table.K0_OUTER, scaled)


def k1(x: Value, scaled: bool = False) -> Value:
    """K1, times ``exp(x)`` if ``scaled``; NaN below zero."""
    u, log = square(x) * 0.5 - 1.0, of(ew.Log(), x * 0.5)
    return _k(x, polynomial(table.K1_INNER, u) / x + log * i1(x), table.K1_OUTER, scaled)


def _k(x: Value, near: Value, far: tuple[float, ...], scaled: bool) -> Value:
    outer = polynomial(far, 4.0 / x - 1.0) / of(ew.Sqrt(), x)
    if scaled:
        near = near * of(ew.Exp(), x)
    else:
        outer = outer * of(ew.Exp(), -x)
    found = where(above(x, 2.0), outer, near)
    return where(of(ew.Equal(), x, x.lift(0.0)), INFINITE, found)


def j0(x: Value) -> Value:
    a = of(ew.Abs(), x)
    near, (far, _) = polynomial(table.J0, square(a) / 32.0 - 1.0), _oscillating(a, 0)
    return where(above(a, 8.0), far, near)


def j1(x: Value) -> Value:
    a = of(ew.Abs(), x)
    near, (far, _) = polynomial(table.J1, square(a) / 32.0 - 1.0) * a, _oscillating(a, 1)
    found = where(above(a, 8.0), far, near)
    return where(below(x, 0.0), -found, found)


def y0(x: Value) -> Value:
    """NaN below zero."""
    u, log = square(x) / 32.0 - 1.0, of(ew.Log(), x)
    near = polynomial(table.Y0, u) + log * polynomial(table.J0, u) * (2 / math.pi)
    return _y(x, near, 0)


def y1(x: Value) -> Value:
    """NaN below zero."""
    u, log = square(x) / 32.0 - 1.0, of(ew.Log(), x)
    near = polynomial(table.Y1, u) * x
    near = near + (log * polynomial(table.J1, u) * x - 1.0 / x) * (2 / math.pi)
    return _y(x, near, 1)


def _y(x: Value, near: Value, order: int) -> Value:
    _, far = _oscillating(x, order)
    found = where(above(x, 8.0), far, near)
    return where(of(ew.Equal(), x, x.lift(0.0)), -INFINITE, found)


def spherical_j0(x: Value) -> Value:
    """``sin(x) / x``, 1 at zero."""
    found = where(of(ew.IsInf(), x), 0.0, of(ew.Sin(), x) / x)
    return where(of(ew.Equal(), x, x.lift(0.0)), 1.0, found)


def _oscillating(x: Value, order: int) -> tuple[Value, Value]:
    """J and Y for ``x >= 8`` by modulus and phase."""
    u = 128.0 / square(x) - 1.0
    p, q = ((table.P0, table.Q0), (table.P1, table.Q1))[order]
    real, imaginary = polynomial(p, u), polynomial(q, u) / x
    turned = x - (math.pi / 4 + order * math.pi / 2)
    sine, cosine = of(ew.Sin(), turned), of(ew.Cos(), turned)
    size = of(ew.Sqrt(), (2 / math.pi) / x)
    return size * (real * cosine - imaginary * sine), size * (real * sine + imaginary * cosine)
