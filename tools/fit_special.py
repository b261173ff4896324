"""Makes the polynomials of ``modelcc/frontends/kit/special_coefficients.py``.

``python tools/fit_special.py > src/modelcc/frontends/kit/special_coefficients.py`` (needs mpmath).
They are Chebyshev series that end where coefficients fall below the rounding of f64, by powers:
series that converge as fast as these lose nothing by that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from textwrap import fill, indent
from types import MappingProxyType
from typing import Any

import mpmath as mp

Function = Callable[[Any], Any]
NODES = 80
SMALLEST = 2e-17


def coefficients(function: Function) -> list[float]:
    """Of the interpolation of ``function`` on [-1, 1] in Chebyshev's nodes, constant term first."""
    angles = [mp.pi * (k + mp.mpf(1) / 2) / NODES for k in range(NODES)]
    values = [function(mp.cos(angle)) for angle in angles]
    found = [
        2 * mp.fsum(v * mp.cos(j * a) for v, a in zip(values, angles, strict=True)) / NODES
        for j in range(NODES)
    ]
    found[0] /= 2
    largest = max(abs(c) for c in found)
    last = max(j for j, c in enumerate(found) if abs(c) > SMALLEST * largest)
    assert last < NODES - 5, "it does not converge"
    return [float(c) for c in powers(found[: last + 1])]


def powers(series: list[Any]) -> list[Any]:
    """The coefficients of powers of what is a sum of Chebyshev polynomials."""
    size = len(series)
    before, this = [mp.mpf(k == 0) for k in range(size)], [mp.mpf(k == 1) for k in range(size)]
    total = [series[0] * b + series[1] * t for b, t in zip(before, this, strict=True)]
    for coefficient in series[2:]:
        doubled = [mp.mpf(0), *(2 * t for t in this[:-1])]
        before, this = this, [d - b for d, b in zip(doubled, before, strict=True)]
        total = [s + coefficient * t for s, t in zip(total, this, strict=True)]
    return total


def between(low: float, high: float, function: Function) -> Function:
    """``function`` of [low, high] as one of [-1, 1]."""
    middle, half = mp.mpf(low + high) / 2, mp.mpf(high - low) / 2
    return lambda u: function(middle + half * u)


def inverse_error(w: Any) -> Any:
    """``erfinv(y) / y`` where ``w = -log(1 - y * y)``, by Newton's steps on ``log(erfc)``."""
    y = mp.sqrt(1 - mp.exp(-w))
    rest = mp.exp(-w) / (1 + y)
    z = mp.erfinv(y) if w < 30 else mp.sqrt(w - mp.log(mp.sqrt(mp.pi * w)))
    for _ in range(8):
        value = mp.erfc(z)
        z += mp.log(value / rest) * value * mp.sqrt(mp.pi) / 2 * mp.exp(z * z)
    return z / y


def phase(order: int) -> Function:
    """``P + i Q`` of x: Bessel functions are ``sqrt(2 / (pi x)) (P + i Q) exp(i (x - phi))``."""
    phi = mp.pi / 4 + order * mp.pi / 2

    def value(x: Any) -> Any:
        whole = mp.besselj(order, x) + 1j * mp.bessely(order, x)
        return whole * mp.exp(-1j * (x - phi)) * mp.sqrt(mp.pi * x / 2)

    return value


def far(function: Function) -> Function:
    """``function`` of ``x >= 8`` by ``u = 128 / x^2 - 1``."""
    return lambda u: function(8 * mp.sqrt(2 / (u + 1)))


def y0(x: Any) -> Any:
    return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)


def y1(x: Any) -> Any:
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


def near(function: Function) -> Function:
    """``function`` of x in [0, 8] by ``u = x^2 / 32 - 1``."""
    return lambda u: function(mp.sqrt(32 * (u + 1)))


def scaled(function: Any, order: int, sign: int) -> Function:
    return lambda x: function(order, x) * mp.exp(sign * x)


def k_near(order: int) -> Function:
    """The part of K without a singularity, by ``u = x^2 / 2 - 1``."""

    def value(u: Any) -> Any:
        x = mp.sqrt(2 * (u + 1))
        log = mp.log(x / 2) * mp.besseli(order, x)
        return mp.besselk(0, x) + log if order == 0 else x * (mp.besselk(1, x) - log)

    return value


def beyond(start: float, function: Function) -> Function:
    """``sqrt(x) function(x)`` of ``x >= start`` by ``u = 2 start / x - 1``."""
    return lambda u: mp.sqrt(2 * start / (u + 1)) * function(2 * start / (u + 1))


def erfcx(u: Any) -> Any:
    """``(1 + 2 x) exp(x^2) erfc(x)`` by ``u = (x - 3.75) / (x + 3.75)``.

    Shepherd & Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x", 1981.
    """
    x = mp.mpf("3.75") * (1 + u) / (1 - u)
    if x > 50:
        tail = mp.fsum((-1) ** k * mp.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(1, 12))
        return (1 + 2 * x) / (x * mp.sqrt(mp.pi)) * (1 + tail)
    return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)


TABLES: Mapping[str, tuple[str, Function]] = MappingProxyType(
    {
        "ERFCX": ("(1 + 2 x) erfcx(x), u = (x - 3.75) / (x + 3.75)", erfcx),
        "ERFINV_INNER": ("erfinv(y) / y, w in [0, 6.25]", between(0, 6.25, inverse_error)),
        "ERFINV_MIDDLE": ("sqrt(w) in [2.5, 4]", between(2.5, 4, lambda s: inverse_error(s * s))),
        "ERFINV_OUTER": ("sqrt(w) in [4, 27]", between(4, 27, lambda s: inverse_error(s * s))),
        "I0_INNER": ("exp(-x) I0(x), x in [0, 8]", between(0, 8, scaled(mp.besseli, 0, -1))),
        "I0_OUTER": ("that times sqrt(x), u = 16 / x - 1", beyond(8, scaled(mp.besseli, 0, -1))),
        "I1_INNER": ("exp(-x) I1(x) / x, x in [0, 8]",
                    between(0, 8, lambda x: scaled(mp.besseli, 1, -1)(x) / x)),
        "I1_OUTER": ("exp(-x) I1(x) sqrt(x), u = 16 / x - 1", beyond(8, scaled(mp.besseli, 1, -1))),
        "K0_INNER": ("K0(x) + log(x / 2) I0(x), u = x^2 / 2 - 1", k_near(0)),
        "K0_OUTER": ("exp(x) K0(x) sqrt(x), u = 4 / x - 1", beyond(2, scaled(mp.besselk, 0, 1))),
        "K1_INNER": ("x (K1(x) - log(x / 2) I1(x)), u = x^2 / 2 - 1", k_near(1)),
        "K1_OUTER": ("exp(x) K1(x) sqrt(x), u = 4 / x - 1", beyond(2, scaled(mp.besselk, 1, 1))),
        "J0": ("J0(x), u = x^2 / 32 - 1", near(lambda x: mp.besselj(0, x))),
        "J1": ("J1(x) / x, u = x^2 / 32 - 1", near(lambda x: mp.besselj(1, x) / x)),
        "Y0": ("Y0(x) - 2 / pi log(x) J0(x), u = x^2 / 32 - 1", near(y0)),
        "Y1": ("(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x, u = x^2 / 32 - 1", near(y1)),
        "P0": ("Re phase of order 0, u = 128 / x^2 - 1", far(lambda x: mp.re(phase(0)(x)))),
        "Q0": ("x Im phase of order 0", far(lambda x: x * mp.im(phase(0)(x)))),
        "P1": ("Re phase of order 1", far(lambda x: mp.re(phase(1)(x)))),
        "Q1": ("x Im phase of order 1", far(lambda x: x * mp.im(phase(1)(x)))),
    }
)  # fmt: skip


def main() -> None:
    mp.mp.dps = 40
    made = "Special functions by powers of u in [-1, 1]; made by ``tools/fit_special.py``."
    print(f'"""{made}"""\n')
    print("Polynomial = tuple[float, ...]")
    for name, (what, function) in TABLES.items():
        found = fill(", ".join(map(repr, coefficients(function))) + ",", 96)
        print(f"\n# {what}\n{name}: Polynomial = (\n{indent(found, '    ')}\n)  # fmt: skip")


if __name__ == "__main__":
    main()
