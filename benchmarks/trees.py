"""Other source trees of this project, and processes that run on them."""

from __future__ import annotations

import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class TreeError(Exception):
    """There is no such tree."""


def sources_of(tree: str, folder: Path) -> Path:
    """The package's sources at `tree`: a commit, whose sources are extracted into `folder`, or a
    folder with a tree, which is used in place."""
    place = Path(tree)
    if (place / "src" / "modelcc").is_dir():
        return (place / "src").resolve()
    command = ("git", "archive", tree, "src")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        reason = lines[0] if lines else f"git's exit status is {done.returncode}"
        raise TreeError(f"{tree!r} is no commit and no folder of a tree: {reason}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


def environment_of(sources: Path | None) -> dict[str, str]:
    """The environment of a process in which the modules of `sources` take precedence over installed
    ones."""
    return {**os.environ, **({} if sources is None else {"PYTHONPATH": str(sources)})}
