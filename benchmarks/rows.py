"""One engine on one model: the line of a comparison."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One engine on one model. Figures are None if the engine did not run; `reason` says why.

    `rounds` are the medians of the rounds in milliseconds; `peak_bytes` is for loading and running,
    `compile_bytes` for compiling.
    """

    model: str
    threads: int
    peer: str
    milliseconds: float | None = None
    low: float | None = None
    high: float | None = None
    speedup: float | None = None
    error: float | None = None
    load_seconds: float | None = None
    peak_bytes: int | None = None
    gflops: float | None = None
    peak_share: float | None = None
    weight_gigabytes: float | None = None
    read_share: float | None = None
    compile_seconds: float | None = None
    cached_seconds: float | None = None
    compile_bytes: int | None = None
    rounds: tuple[float, ...] = ()
    reason: str = ""
