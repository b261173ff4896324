"""Fourier transforms compared with SciPy's pocketfft: ``python -m
benchmarks.libraries.transforms``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from types import MappingProxyType
from typing import Any

import click
import numpy as np
from scipy import fft

import modelcc
from benchmarks.libraries.rows import Row, compiled, row, show

LENGTHS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "2^n": tuple(1 << n for n in range(6, 21, 2)),
        "factors to 7": (60, 96, 360, 1000, 5040, 17_640, 44_100, 100_000, 441_000, 1_000_000),
        "prime": (67, 127, 257, 1009, 4099, 10_007, 65_537, 100_003, 1_000_003),
        "twice a prime": (134, 1018, 2018),
    }
)
FLOATS: Mapping[str, tuple[Any, Any]] = MappingProxyType(
    {"float": (np.float32, np.complex64), "double": (np.float64, np.complex128)}
)


@cache
def _net(dtype: str, real: bool, length: str) -> modelcc.Model:
    parts, half = (1, 1) if real else (2, 0)
    inputs = f"({dtype}[1, {length}, {parts}] x) => ({dtype}[1, m, 2] y)"
    return compiled(f"{inputs} {{ y = DFT<axis = 1, onesided = {half}>(x) }}", 17)


def rows(named: bool) -> Iterator[Row]:
    """Real and complex transforms; lengths are static, or ``named`` in one model for all."""
    random = np.random.default_rng(0)
    for dtype, (single, pair) in FLOATS.items():
        for real in (True, False):
            for kind, lengths in LENGTHS.items():
                for n in lengths:
                    net = _net(dtype, real, "n" if named else str(n))
                    x = random.standard_normal((1, n, 1 if real else 2)).astype(single)
                    values = x[..., 0] if real else x.view(pair)[..., 0]
                    other = partial(fft.rfft if real else fft.fft, values, axis=1)
                    family = f"{dtype} {'real' if real else 'complex'} {kind}"
                    yield row(family, str(n), net, {"x": x}, other)


@click.command()
@click.option("--named", is_flag=True, help="One model for all lengths, which come at run time.")
def main(named: bool) -> None:
    """DFT from 64 to a million points."""
    show(rows(named), ("pocketfft",))


if __name__ == "__main__":
    main()
