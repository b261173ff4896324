"""Artifacts by the command line, which needs no GPU to write what runs on one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def compile_file(path: Path, target: str, artifact: Path, dims: Mapping[str, int]) -> None:
    """Compile the model in ``path``; CalledProcessError if that fails."""
    fixed = [word for name, size in dims.items() for word in ("--dim", f"{name}={size}")]
    command = [sys.executable, "-m", "modelcc", "compile", str(path), "--target", target]
    subprocess.run([*command, *fixed, "-o", str(artifact)], check=True, stdout=subprocess.DEVNULL)
