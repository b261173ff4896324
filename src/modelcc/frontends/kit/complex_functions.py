"""Functions of complex numbers in terms of real and imaginary parts (Abramowitz and Stegun 4.2,
4.3, 4.5)."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.frontends.kit.angles import arctangent, ordered
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of


@dataclass(frozen=True)
class Complex:
    """A complex operand with overloaded arithmetic."""

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
        """Scaled by the larger part of the divisor, whose square may overflow."""
        scale = of(ew.Max(), of(ew.Abs(), other.re), of(ew.Abs(), other.im))
        re, im = other.re / scale, other.im / scale
        total = (re * re + im * im) * scale
        return Complex((self.re * re + self.im * im) / total, (self.im * re - self.re * im) / total)

    def scaled(self, factor: float) -> Complex:
        return Complex(self.re * factor, self.im * factor)

    def turned(self) -> Complex:
        """Multiplied by i."""
        return Complex(-self.im, self.re)


def magnitude(z: Complex) -> Value:
    """The absolute value, without overflow of intermediate results."""
    a, b = of(ew.Abs(), z.re), of(ew.Abs(), z.im)
    great, less = ordered(a, b)
    plain = of(ew.Or(), of(ew.Equal(), great, great.lift(0.0)), of(ew.IsInf(), great))
    ratio = less / of(ew.Where(), plain, great.lift(1.0), great)
    return of(ew.Where(), plain, a + b, great * of(ew.Sqrt(), ratio * ratio + 1.0))


def angle(z: Complex) -> Value:
    return arctangent(z.im, z.re)


def exponential(z: Complex) -> Complex:
    size = of(ew.Exp(), z.re)
    real = of(ew.Equal(), z.im, z.im.lift(0.0))
    sine = of(ew.Where(), real, z.im, size * of(ew.Sin(), z.im))
    return Complex(size * of(ew.Cos(), z.im), sine)


def logarithm(z: Complex) -> Complex:
    return Complex(of(ew.Log(), magnitude(z)), angle(z))


def root(z: Complex) -> Complex:
    """The root in the right half plane: from ``|re| + |z|``; the other part by division."""
    size = magnitude(z)
    root = of(ew.Sqrt(), (of(ew.Abs(), z.re) + size) * 0.5)
    zero = of(ew.Equal(), root, root.lift(0.0))
    other = of(ew.Abs(), z.im) / of(ew.Where(), zero, root.lift(1.0), root) * 0.5
    right = of(ew.GreaterOrEqual(), z.re, z.re.lift(0.0))
    re, im = of(ew.Where(), right, root, other), of(ew.Where(), right, other, root)
    below = of(ew.Less(), angle(z), z.im.lift(0.0))
    return Complex(re, of(ew.Where(), below, -im, im))


def sine(z: Complex) -> Complex:
    return Complex(
        of(ew.Sin(), z.re) * of(ew.Cosh(), z.im), of(ew.Cos(), z.re) * of(ew.Sinh(), z.im)
    )


def cosine(z: Complex) -> Complex:
    return Complex(
        of(ew.Cos(), z.re) * of(ew.Cosh(), z.im), -of(ew.Sin(), z.re) * of(ew.Sinh(), z.im)
    )


def hyperbolic_tangent(z: Complex) -> Complex:
    """``(t (1 + u²) + i u (1 - t²)) / (1 + t² u²)`` with ``t = tanh re``, ``u = tan im``."""
    t, u = of(ew.Tanh(), z.re), of(ew.Tan(), z.im)
    below = (t * u) * (t * u) + 1.0
    cosh = of(ew.Cosh(), of(ew.Min(), of(ew.Abs(), z.re), z.re.lift(40.0)))
    return Complex(t * (u * u + 1.0) / below, u / (cosh * cosh) / below)


def tangent(z: Complex) -> Complex:
    back = hyperbolic_tangent(z.turned())
    return Complex(back.im, -back.re)


def logarithm_of_one_more(z: Complex) -> Complex:
    """``log |1 + z|`` as half of ``log1p(re (2 + re) + im²)``."""
    inner = z.re * (z.re + 2.0) + z.im * z.im
    turn = angle(Complex(z.re + 1.0, z.im))
    return Complex(of(ew.Log1p(), inner) * 0.5, turn)


def exponential_less_one(z: Complex) -> Complex:
    """``expm1(re) cos(im) - 2 sin²(im / 2)``."""
    half = of(ew.Sin(), z.im * 0.5)
    re = of(ew.Expm1(), z.re) * of(ew.Cos(), z.im) - half * half * 2.0
    return Complex(re, exponential(z).im)


def direction(z: Complex) -> Complex:
    size = magnitude(z)
    zero = of(ew.Equal(), size, size.lift(0.0))
    safe = of(ew.Where(), zero, size.lift(1.0), size)
    return Complex(z.re / safe, z.im / safe)


def power(a: Complex, b: Complex) -> Complex:
    found = exponential(logarithm(a) * b)
    zero = of(ew.Equal(), magnitude(a), a.re.lift(0.0))
    none = of(ew.Equal(), magnitude(b), b.re.lift(0.0))
    re = of(ew.Where(), zero, of(ew.Where(), none, a.re.lift(1.0), a.re.lift(0.0)), found.re)
    return Complex(re, of(ew.Where(), zero, a.im.lift(0.0), found.im))


def cube_root(z: Complex) -> Complex:
    """The cube root of the modulus, a third of the angle."""
    return power(z, one(z).scaled(1 / 3))


def complex_arctangent(y: Complex, x: Complex) -> Complex:
    """``-i log((x + i y) / sqrt(x^2 + y^2))``."""
    found = logarithm((x + y.turned()) / root(x * x + y * y))
    return Complex(found.im, -found.re)


def greater(a: Complex, b: Complex) -> Complex:
    """The elementwise maximum; NaN if either is."""
    return _chosen(of(ew.Or(), _is_greater(a, b), _is_nan(a)), a, b)


def lesser(a: Complex, b: Complex) -> Complex:
    """The elementwise minimum; NaN if either is."""
    return _chosen(of(ew.Or(), _is_greater(b, a), _is_nan(a)), a, b)


def _is_greater(a: Complex, b: Complex) -> Value:
    """Lexicographic comparison by real, then imaginary parts."""
    later = of(ew.And(), of(ew.Equal(), a.re, b.re), of(ew.Greater(), a.im, b.im))
    return of(ew.Or(), of(ew.Greater(), a.re, b.re), later)


def _is_nan(z: Complex) -> Value:
    return of(ew.Or(), of(ew.IsNaN(), z.re), of(ew.IsNaN(), z.im))


def _chosen(condition: Value, a: Complex, b: Complex) -> Complex:
    re, im = (of(ew.Where(), condition, *parts) for parts in ((a.re, b.re), (a.im, b.im)))
    return Complex(re, im)


def one(like: Complex) -> Complex:
    """1, in the shape of ``like``'s parts or one that broadcasts to it."""
    return Complex(like.re.lift(1.0), like.re.lift(0.0))


def reciprocal_root(z: Complex) -> Complex:
    return one(z) / root(z)


def logistic(z: Complex) -> Complex:
    return one(z) / (one(z) + exponential(z.scaled(-1.0)))


def hyperbolic_sine(z: Complex) -> Complex:
    """``-i sin(i z)``."""
    back = sine(z.turned())
    return Complex(back.im, -back.re)


def hyperbolic_cosine(z: Complex) -> Complex:
    return cosine(z.turned())
