"""modelcc itself."""

from __future__ import annotations

from pathlib import Path

import modelcc
from benchmarks.peers import Run


def load(path: Path, threads: int) -> Run:
    """Compiles the model for this machine."""
    return modelcc.compile(str(path), threads=threads).run
