"""Messages between a worker and its parent; pickled, so kept out of both their modules."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.peers import Arrays


@dataclass(frozen=True)
class Task:
    """The first message to a worker."""

    peer: str
    model: Path
    threads: int
    cores: tuple[int, ...]
    feeds: Arrays


@dataclass(frozen=True)
class Loaded:
    """The engine is ready: seconds to load or compile, outputs and seconds of the first calls."""

    load_seconds: float
    call_seconds: float
    outputs: dict[str, np.ndarray]


@dataclass(frozen=True)
class Failed:
    """The engine cannot run the model."""

    reason: str
