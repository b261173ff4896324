"""Commands of external tools, whose failures are messages."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from modelcc.targets.c.toolchain import ToolchainError

SECONDS = 600


def run_command(command: Sequence[str], folder: Path) -> str:
    """The output of ``command``; :class:`ToolchainError` if it fails."""
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ToolchainError(f"{command[0]} has not ended after {SECONDS} seconds") from error
    if done.returncode:
        words = "\n".join(done.stderr.strip().splitlines()[-12:])
        raise ToolchainError(f"{command[0]} ends with {done.returncode}\n{words}".rstrip())
    return done.stdout
