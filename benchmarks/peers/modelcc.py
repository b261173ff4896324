"""modelcc itself: its runtime, on compiled artifacts."""

from __future__ import annotations

from pathlib import Path

import modelcc
from benchmarks.peers import Run


def load(path: Path, threads: int) -> Run:
    """Loads an artifact, `.mcc`, from `benchmarks.compilation`."""
    return modelcc.load(path, threads=threads).run
