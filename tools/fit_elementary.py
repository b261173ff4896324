"""Fits the polynomials of ``passes/loop/elementary/coefficients.py`` and prints that file.

Minimax polynomials by the Remez exchange algorithm (E. Remez, 1934) with a weight that makes the
error relative to the function. Needs ``mpmath``.

    python tools/fit_elementary.py > src/modelcc/passes/loop/elementary/coefficients.py
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import fill, indent
from typing import Any

from mpmath import mp

mp.dps = 50
Function = Callable[[Any], Any]


@dataclass(frozen=True)
class Fit:
    """Minimise ``|weight(t) * (P(t) - target(t))|`` for ``t`` in ``[low, high]``."""

    name: str
    meaning: str
    low: Any
    high: Any
    target: Function
    weight: Function
    degrees: tuple[int, int]


def limit(f: Function, series: Function) -> Function:
    """``f`` away from 0, where it would cancel, and its Taylor series near it."""
    return lambda t: series(t) if abs(t) < mp.mpf("1e-8") else f(t)


LN2 = mp.log(2)
HALF = LN2 / 2
ROOT = mp.sqrt(2)
QUARTER = (mp.pi / 4) ** 2


def of_square(f: Function) -> Function:
    return lambda z: f(mp.sqrt(z))


FITS = (
    Fit(
        "EXP", "exp(r) = 1 + r + r^2 P(r), |r| <= ln(2)/2", -HALF, HALF,
        limit(lambda r: (mp.expm1(r) - r) / r**2, lambda r: mp.mpf(1) / 2 + r / 6),
        lambda r: r * r, (4, 9),
    ),
    Fit(
        "EXP2", "2^r = 1 + r P(r), |r| <= 1/2", -mp.mpf(1) / 2, mp.mpf(1) / 2,
        limit(lambda r: mp.expm1(r * LN2) / r, lambda r: LN2 + LN2**2 / 2 * r),
        lambda r: r, (5, 10),
    ),
    Fit(
        "LOGISTIC", "exp(-r) = 1 + r P(r), |r| <= ln(2)/2", -HALF, HALF,
        limit(lambda r: mp.expm1(-r) / r, lambda r: -1 + r / 2),
        lambda r: r, (4, 10),
    ),
    Fit(
        "LOG", "log(1 + f) = f - f^2/2 + f^3 P(f), sqrt(1/2) <= 1 + f <= sqrt(2)",
        1 / ROOT - 1, ROOT - 1,
        limit(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, lambda f: mp.mpf(1) / 3 - f / 4),
        lambda f: f**2, (8, 19),
    ),
    Fit(
        "SIN", "sin(r) = r + r^3 P(r^2), |r| <= pi/4", mp.mpf("1e-20"), QUARTER,
        limit(of_square(lambda r: (mp.sin(r) - r) / r**3), lambda z: -mp.mpf(1) / 6 + z / 120),
        lambda z: z, (2, 5),
    ),
    Fit(
        "COS", "cos(r) = 1 - r^2/2 + r^4 P(r^2), |r| <= pi/4", mp.mpf("1e-20"), QUARTER,
        limit(
            of_square(lambda r: (mp.cos(r) - 1 + r * r / 2) / r**4),
            lambda z: mp.mpf(1) / 24 - z / 720,
        ),
        lambda z: z * z, (2, 5),
    ),
    Fit(
        "ASIN", "asin(x) = x + x^3 P(x^2), |x| <= 1/2", mp.mpf("1e-20"), mp.mpf(1) / 4,
        limit(of_square(lambda x: (mp.asin(x) - x) / x**3), lambda z: mp.mpf(1) / 6 + z * 3 / 40),
        lambda z: z, (4, 12),
    ),
    Fit(
        "ATAN", "atan(x) = x + x^3 P(x^2), |x| <= 1", mp.mpf("1e-20"), mp.mpf(1),
        limit(of_square(lambda x: (mp.atan(x) - x) / x**3), lambda z: -mp.mpf(1) / 3 + z / 5),
        lambda z: z, (8, 19),
    ),
    Fit(
        "SINH", "sinh(x) = x + x^3 P(x^2), |x| <= 1", mp.mpf("1e-20"), mp.mpf(1),
        limit(of_square(lambda x: (mp.sinh(x) - x) / x**3), lambda z: mp.mpf(1) / 6 + z / 120),
        lambda z: z, (2, 5),
    ),
    Fit(
        "ERF", "erf(x) = x + x P(x^2), |x| <= 1", mp.mpf("1e-20"), mp.mpf(1),
        limit(
            of_square(lambda x: mp.erf(x) / x - 1), lambda z: 2 / mp.sqrt(mp.pi) * (1 - z / 3) - 1
        ),
        lambda z: 1, (6, 12),
    ),
    Fit(
        "ERFC", "erfc(x) exp(x^2) = P(t), t = 2/(1 + x) - 1/2 - 1/7, 1 <= x <= 6",
        2 / mp.mpf(7) - mp.mpf(9) / 14, mp.mpf(5) / 14,
        lambda t: _scaled_erfc(2 / (t + mp.mpf(9) / 14) - 1),
        lambda t: 1, (9, 17),
    ),
)  # fmt: skip


def _scaled_erfc(x: Any) -> Any:
    return mp.erfc(x) * mp.exp(x * x)


def remez(fit: Fit, degree: int) -> tuple[list[Any], Any]:
    """Coefficients, constant first, and the largest weighted error."""
    count = degree + 2
    middle, half = (fit.high + fit.low) / 2, (fit.high - fit.low) / 2
    points = [middle - half * mp.cos(mp.pi * k / (count - 1)) for k in range(count)]
    points = [p if abs(fit.weight(p)) > mp.mpf("1e-30") else p + half / 1000 for p in points]
    grid = [middle - half * mp.cos(mp.pi * k / 600) for k in range(601)]
    values = [fit.target(t) for t in grid]
    weights = [fit.weight(t) for t in grid]
    coefficients: list[Any] = []
    worst = mp.mpf(0)
    for _ in range(12):
        rows = [
            [*(p**power for power in range(degree + 1)), (-1) ** k / abs(fit.weight(p))]
            for k, p in enumerate(points)
        ]
        solution = mp.lu_solve(mp.matrix(rows), mp.matrix([fit.target(p) for p in points]))
        coefficients = list(solution[: degree + 1])
        errors = [
            (mp.polyval(coefficients[::-1], t) - v) * abs(w)
            for t, v, w in zip(grid, values, weights, strict=True)
        ]
        worst = max(abs(e) for e in errors)
        extremes = _extremes(grid, errors, count)
        if extremes is None or worst < abs(solution[degree + 1]) * mp.mpf("1.001"):
            break
        points = extremes
    return coefficients, worst


def _extremes(grid: list[Any], errors: list[Any], count: int) -> list[Any] | None:
    """The largest error of each run of equal sign, the ``count`` largest that follow each other."""
    runs: list[int] = []
    for position, error in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = position
        else:
            runs.append(position)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return [grid[r] for r in runs] if len(runs) == count else None


def single(value: Any) -> float:
    """Rounded to the nearest f32."""
    return struct.unpack("f", struct.pack("f", float(value)))[0]


def main() -> None:
    """Print the module of coefficients."""
    print('"""Minimax polynomials, constant term first; made by ``tools/fit_elementary.py``.')
    print()
    print("``NAME[32]`` is for f32 and ``NAME[64]`` for f64; the largest error of each is given in")
    print('units of the function or of its first term."""')
    print()
    print("from collections.abc import Mapping")
    print("from types import MappingProxyType")
    print("from typing import TypeAlias")
    print()
    print("Polynomials: TypeAlias = Mapping[int, tuple[float, ...]]")
    for fit in FITS:
        print(f"\n# {fit.meaning}")
        print(f"{fit.name}: Polynomials = MappingProxyType({{")
        for bits, degree, rounded in zip((32, 64), fit.degrees, (single, float), strict=True):
            coefficients, worst = remez(fit, degree)
            print(f"    {bits}: (  # {mp.nstr(worst, 2)}")
            numbers = "".join(f"{rounded(c)!r}, " for c in coefficients).strip()
            print(indent(fill(numbers, 92, break_on_hyphens=False), " " * 8))
            print("    ),")
        print("})  # fmt: skip")


if __name__ == "__main__":
    main()
