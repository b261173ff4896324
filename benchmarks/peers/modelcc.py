"""modelcc itself: its runtime, on what its compiler made beforehand."""

from __future__ import annotations

from pathlib import Path

import modelcc
from benchmarks.peers import Run


def load(path: Path, threads: int) -> Run:
    """Loads an artifact, `.mcc`; `benchmarks.compilation` makes them."""
    return modelcc.load(path, threads=threads).run
