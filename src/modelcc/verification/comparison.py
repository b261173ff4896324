"""Errors of computed arrays relative to expected ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from modelcc.ir.types import Array, dtype_of

TOLERANCES: Mapping[str, float] = MappingProxyType(
    {"f64": 1e-8, "f32": 1e-4, "f16": 2e-2, "bf16": 5e-2}
)
"""Greatest accepted error as a fraction of the greatest expected value; 0 for other types."""

BITS = MappingProxyType({"tf32": 11, "f16": 11, "bf16": 8})
"""Significand bits to which products of f32 may be rounded; other precisions keep those of f32."""

ROUNDINGS = 10
"""Accepted errors of one rounding, for each product in quadrature: roundings are independent, and
convolutional networks with random weights, whose results are small relative to their terms, reach
7.5 of them, transformers 0.2."""


@dataclass(frozen=True)
class Difference:
    """One value compared with the expected one.

    ``error`` is the greatest absolute error, ``relative`` that divided by the greatest magnitude
    expected, ``at`` the index of the greatest error, ``got`` and ``expected`` the values there.
    ``problem`` describes other errors (shape, dtype, NaN), or is empty.
    """

    name: str
    error: float
    relative: float
    tolerance: float
    at: tuple[int, ...] = ()
    got: float = 0.0
    expected: float = 0.0
    problem: str = ""

    @property
    def agrees(self) -> bool:
        """Whether the value is within the tolerance."""
        return not self.problem and self.relative <= self.tolerance

    def __str__(self) -> str:
        if self.problem:
            return f"{self.name}: {self.problem}"
        place = f" at {list(self.at)}: {self.got:.9g} instead of {self.expected:.9g}"
        where = place if self.error else ""
        return f"{self.name}: error {self.relative:.2e} of the greatest value{where}"


def compare(name: str, got: Array, expected: Array, tolerance: float | None = None) -> Difference:
    """``got`` against ``expected``; NaN must meet NaN and infinities must be equal."""
    allowed = tolerance_of(expected) if tolerance is None else tolerance
    if got.shape != expected.shape or got.dtype != expected.dtype:
        found = f"is {dtype_of(got)}{list(got.shape)}"
        wanted = f"{dtype_of(expected)}{list(expected.shape)}"
        return Difference(name, 0.0, 0.0, allowed, problem=f"{found} instead of {wanted}")
    if expected.size == 0:
        return Difference(name, 0.0, 0.0, allowed)
    if expected.dtype == object:
        return _compare_text(name, got, expected)
    return _compare_numbers(name, _wide(got), _wide(expected), allowed)


def compare_all(
    got: Mapping[str, Array], expected: Mapping[str, Array], tolerance: float | None = None
) -> tuple[Difference, ...]:
    """A difference for each name in ``expected``."""
    return tuple(compare(name, got[name], value, tolerance) for name, value in expected.items())


def tolerance_of(expected: Array) -> float:
    """The accepted error for arrays of this type."""
    return TOLERANCES.get(dtype_of(expected).name, 0.0)


def lowered_tolerance(precision: str, products: int) -> float:
    """The accepted error of a chain of at most ``products`` products, whose operands are rounded to
    ``precision``."""
    return float(ROUNDINGS * 2.0 ** -BITS[precision] * max(products, 1) ** 0.5)


def _wide(array: Array) -> Array:
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def _compare_numbers(name: str, got: Array, expected: Array, allowed: float) -> Difference:
    with np.errstate(invalid="ignore"):
        errors = np.abs(got - expected)
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    errors = np.where(same, 0.0, np.where(np.isnan(errors), np.inf, errors))
    at = np.unravel_index(int(np.argmax(errors)), errors.shape)
    error = float(errors[at])
    finite = np.abs(expected[np.isfinite(expected)])
    greatest = float(finite.max()) if finite.size else 0.0
    relative = error / greatest if greatest > 0 else error
    place = tuple(int(i) for i in at)
    return Difference(
        name, error, relative, allowed, place, float(got[at].real), float(expected[at].real)
    )


def _compare_text(name: str, got: Array, expected: Array) -> Difference:
    wrong = np.argwhere(got != expected)
    if not len(wrong):
        return Difference(name, 0.0, 0.0, 0.0)
    at = tuple(int(i) for i in wrong[0])
    text = f"{got[at]!r} instead of {expected[at]!r} at {list(at)}"
    return Difference(name, 0.0, 0.0, 0.0, at, problem=text)
