"""Fourier transforms of a few complex numbers, written out: the butterflies of longer ones.

Numbers are pairs of real and imaginary parts, of any number of lanes; transforms are forward and
unscaled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, pi, sin, sqrt
from types import MappingProxyType

from modelcc.ir.algorithm import AlgorithmBuilder, call, number
from modelcc.ir.loop import Expr

Complex = tuple[Expr, Expr]
"""Real and imaginary part."""


def plus(at: AlgorithmBuilder, a: Complex, b: Complex) -> Complex:
    """The sum."""
    return at.let(call("add", a[0], b[0])), at.let(call("add", a[1], b[1]))


def minus(at: AlgorithmBuilder, a: Complex, b: Complex) -> Complex:
    """The difference."""
    return at.let(call("sub", a[0], b[0])), at.let(call("sub", a[1], b[1]))


def times(at: AlgorithmBuilder, a: Complex, b: Complex) -> Complex:
    """The product."""
    real = call("sub", call("mul", a[0], b[0]), call("mul", a[1], b[1]))
    imaginary = call("add", call("mul", a[0], b[1]), call("mul", a[1], b[0]))
    return at.let(real), at.let(imaginary)


def scaled(at: AlgorithmBuilder, a: Complex, factor: float) -> Complex:
    """``a`` times a real constant."""
    by = number(factor, a[0].dtype, a[0].lanes)
    return at.let(call("mul", a[0], by)), at.let(call("mul", a[1], by))


def turned_back(at: AlgorithmBuilder, a: Complex) -> Complex:
    """``-i * a``."""
    return a[1], at.let(call("neg", a[0]))


def butterfly(at: AlgorithmBuilder, values: Sequence[Complex]) -> Sequence[Complex]:
    """The transform of ``values``."""
    special = _SPECIAL.get(len(values))
    return special(at, values) if special else _odd(at, values)


def _two(at: AlgorithmBuilder, values: Sequence[Complex]) -> Sequence[Complex]:
    a, b = values
    return plus(at, a, b), minus(at, a, b)


def _four(at: AlgorithmBuilder, values: Sequence[Complex]) -> Sequence[Complex]:
    a, b, c, d = values
    even, even_rest = plus(at, a, c), minus(at, a, c)
    odd, odd_rest = plus(at, b, d), turned_back(at, minus(at, b, d))
    return (
        plus(at, even, odd),
        plus(at, even_rest, odd_rest),
        minus(at, even, odd),
        minus(at, even_rest, odd_rest),
    )


def _eight(at: AlgorithmBuilder, values: Sequence[Complex]) -> Sequence[Complex]:
    even, odd = _four(at, values[::2]), _four(at, values[1::2])
    (_, one, two, three) = odd
    # exp(-i pi / 4) is (1 - i) / sqrt(2).
    eighth = scaled(at, (call("add", one[0], one[1]), call("sub", one[1], one[0])), sqrt(0.5))
    back = (call("sub", three[1], three[0]), call("neg", call("add", three[0], three[1])))
    turned = (odd[0], eighth, turned_back(at, two), scaled(at, back, sqrt(0.5)))
    pairs = list(zip(even, turned, strict=True))
    return (*(plus(at, e, o) for e, o in pairs), *(minus(at, e, o) for e, o in pairs))


def _odd(at: AlgorithmBuilder, values: Sequence[Complex]) -> Sequence[Complex]:
    """Of an odd number: by sums and differences of what is multiplied by conjugates."""
    first, size = values[0], len(values)
    half = range(1, size // 2 + 1)
    sums = [plus(at, values[j], values[size - j]) for j in half]
    differences = [minus(at, values[j], values[size - j]) for j in half]
    total = first
    for one in sums:
        total = plus(at, total, one)
    results = [total] * size
    for k in half:
        even, odd = first, None
        for j in half:
            angle = 2 * pi * (j * k % size) / size
            even = plus(at, even, scaled(at, sums[j - 1], cos(angle)))
            part = scaled(at, differences[j - 1], sin(angle))
            odd = part if odd is None else plus(at, odd, part)
        assert odd is not None
        turned = turned_back(at, odd)
        results[k], results[size - k] = plus(at, even, turned), minus(at, even, turned)
    return results


def _nine(at: AlgorithmBuilder, values: Sequence[Complex]) -> Sequence[Complex]:
    """Threes of threes (Cooley and Tukey)."""
    columns = [_odd(at, values[j::3]) for j in range(3)]
    results = list(values)
    for k in range(3):
        row = [_turned(at, columns[j][k], -2 * pi * j * k / 9) for j in range(3)]
        results[k::3] = _odd(at, row)
    return results


def _turned(at: AlgorithmBuilder, value: Complex, angle: float) -> Complex:
    """``exp(i angle) * value``."""
    if angle == 0:
        return value
    kind, lanes = value[0].dtype, value[0].lanes
    return times(at, value, (number(cos(angle), kind, lanes), number(sin(angle), kind, lanes)))


_SPECIAL: MappingProxyType[
    int, Callable[[AlgorithmBuilder, Sequence[Complex]], Sequence[Complex]]
] = MappingProxyType({2: _two, 4: _four, 8: _eight, 9: _nine})
