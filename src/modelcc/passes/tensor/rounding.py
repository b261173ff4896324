"""How much larger rounding errors may be in algorithms that save multiplications.

Every value is bounded along the algorithm's own formulas, to first order in the unit roundoff u,
with operands of magnitude 1 at most: an addition or a multiplication makes an error of u times the
magnitude of its result, and errors of operands go through (Higham, "Accuracy and Stability of
Numerical Algorithms", 2nd ed., sections 3.1 and 3.5; 23.2.2 for Strassen's algorithm; Barabasz et
al., "Error analysis and improving the accuracy of Winograd convolution for deep neural networks",
2020, theorems 1 and 2, whose norms of A, B and G these are).  A sum of n products, of which each
may be rounded n times, has magnitude n and error n² u.

:func:`growth` is the greatest such error of a result by that n² of the sum that it stands for.  So
whatever the data are, errors are at most ``growth * n * u * sum(max|x| * max|w|)``, the sum over
the channels (of a product: over the summands) and their taps, the maxima over all operands in a
tile or matrix; direct sums have the same bound without ``growth``.  Errors themselves are far
below bounds in both.  Where operands are of like magnitudes, or scaled anyhow at random, errors of
these algorithms are below ``growth`` times those of direct sums, and above a sixth of that for
normally distributed values (root mean squares; the tests measure both).  Where all but a few
operands of a tile are 0, a direct sum has few products that count and makes errors like a shorter
one; these algorithms do not, and only the bound above holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from modelcc.passes.tensor.winograd_transforms import (
    in_two_steps,
    transform_input,
    transform_output,
    transform_taps,
)


@dataclass(frozen=True)
class Rounded:
    """A value that is ``magnitude`` at most, and off by ``error`` units of roundoff at most.

    The magnitudes of a sum are those of its parts together: right where no operand occurs in both.
    """

    magnitude: float = 1.0
    error: float = 0.0

    def __add__(self, other: Rounded) -> Rounded:
        return rounded(self.magnitude + other.magnitude, self, other)

    def __sub__(self, other: Rounded) -> Rounded:
        return self + other

    def __mul__(self, factor: float) -> Rounded:
        scaled = Rounded(self.magnitude * abs(factor), self.error * abs(factor))
        return rounded(scaled.magnitude, scaled)


def rounded(magnitude: float, *parts: Rounded) -> Rounded:
    """A sum of ``parts``, some of which may cancel so that it is ``magnitude`` at most."""
    return Rounded(magnitude, sum(p.error for p in parts) + magnitude)


def sum_of_products(count: int, x: Rounded, w: Rounded) -> Rounded:
    """``count`` products, one added after the other."""
    magnitude = count * x.magnitude * w.magnitude
    inherited = count * (x.error * w.magnitude + x.magnitude * w.error)
    return Rounded(magnitude, inherited + count * magnitude)


def growth(results: Iterable[Rounded], summands: int) -> float:
    """The greatest error by that of a direct sum of ``summands``; rounded up to hundredths."""
    direct = sum_of_products(summands, Rounded(), Rounded())
    return ceil(max(r.error for r in results) / direct.error * 100) / 100


def winograd_rounding(m: int, inputs: int, constant: bool = True) -> float:
    """Growth by F(m×m, 3×3) over ``inputs`` channels; filters are transformed in f32 if they are
    not ``constant``."""
    size = m + 2
    window = [[Rounded() for _ in range(size)] for _ in range(size)]
    half = in_two_steps(window, lambda line: transform_input(m, line))
    taps = [[Rounded() for _ in range(3)] for _ in range(3)]
    lines = in_two_steps(taps, lambda line: transform_taps(m, line))
    products: list[Sequence[Rounded]] = []
    for line, filters in zip(half, lines, strict=True):
        made = transform_taps(m, filters)
        # Constant filters are transformed exactly, then rounded once.
        once = [rounded(u.magnitude) for u in made]
        pairs = zip(transform_input(m, line), once if constant else made, strict=True)
        products.append([sum_of_products(inputs, v, u) for v, u in pairs])
    results = in_two_steps(products, lambda line: transform_output(m, line))
    return growth((y for line in results for y in transform_output(m, line)), 9 * inputs)


def strassen_rounding(summed: int) -> float:
    """Growth by one step of Strassen's algorithm, in Winograd's form, of sums over ``summed``.

    Of many summands that is 4.5: Higham's 18 quarters (section 23.2.2).
    """
    a = w = Rounded()
    half = summed // 2
    s1, t1 = rounded(2, a, a), rounded(2, w, w)
    s2, t2 = rounded(3, s1, a), rounded(3, w, t1)
    s3, s4 = rounded(2, a, s2), rounded(4, a, s2)
    p1, p5 = sum_of_products(half, a, w), sum_of_products(half, s1, t1)
    u2 = p1 + sum_of_products(half, s2, t2)
    u3 = u2 + sum_of_products(half, s3, rounded(2, t2, w))
    c11 = p1 + sum_of_products(half, a, w)
    c12 = u2 + p5 + sum_of_products(half, s4, rounded(1, t1, t2))
    c21 = u3 + sum_of_products(half, a, rounded(4, w, t2))
    return growth((c11, c12, c21, u3 + p5), summed)
