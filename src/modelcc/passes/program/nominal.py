"""Typical values of named dimensions, to compare plans; plans are valid for all values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from modelcc.ir.index import DIM, Bounds, Index, symbols

TYPICAL = 32
"""Typical value of an unbounded dimension (a batch, a number of tokens)."""

LARGE = 512
"""Large value of an unbounded dimension."""


def nominal_values(sizes: Iterable[Index], dims: Bounds) -> dict[str, int]:
    """A typical value within its bounds for every symbol in ``sizes``."""
    return {name: _clamped(TYPICAL, name, dims) for name in _names(sizes)}


def sample_values(sizes: Iterable[Index], dims: Bounds) -> tuple[Mapping[str, int], ...]:
    """The typical values, and all symbols at their least and at their greatest."""
    names = _names(sizes)
    wanted = (TYPICAL, 1, LARGE) if names else (TYPICAL,)
    samples = [{name: _clamped(value, name, dims) for name in names} for value in wanted]
    return tuple(s for i, s in enumerate(samples) if s not in samples[:i])


def _names(sizes: Iterable[Index]) -> tuple[str, ...]:
    return tuple(sorted({name for size in sizes for name in symbols(size)}))


def _clamped(value: int, name: str, dims: Bounds) -> int:
    bounds = dims.get(name, DIM)
    low = bounds.lo if isinstance(bounds.lo, int) else 1
    high = bounds.hi if isinstance(bounds.hi, int) else max(value, low)
    return min(max(value, low), high)
