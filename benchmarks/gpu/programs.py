"""NVIDIA's checkers and profiler, where installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from benchmarks.gpu.results import Results, Row

SANITIZERS = "memcheck", "racecheck"
SANITIZED = 0.15
"""Maximum fraction of the remaining time for each of them."""

DETAILS = "ncu.txt"
SECTIONS = ("--set", "detailed", "--section", "WarpStateStats", "--section", "SourceCounters")
PROFILED = 30.0
"""Seconds to profile one kernel."""

LATE = "not done in time"


@dataclass(frozen=True)
class Programs:
    """Names of the programs."""

    sanitizer: str = "compute-sanitizer"
    profiler: str = "ncu"

    def sanitize(
        self, results: Results, folder: Path, device: str, end: float, kernels: Sequence[str]
    ) -> None:
        """Checks memory accesses and races of all ``kernels`` at once."""
        checker = shutil.which(self.sanitizer)
        for tool in SANITIZERS if checker is not None and kernels else ():
            if results.is_right(tool):
                continue
            how = [str(checker), "--tool", tool, "--error-exitcode", "9"]
            seconds = max(SANITIZED * (end - perf_counter()), 1.0)
            done = _run([*how, *_once(folder, device, kernels)], seconds)
            if done is None:
                results.add(Row("sanitizer", tool, fault=LATE))
                continue
            said = [line for line in done.stdout.splitlines() if "=====" in line]
            fault = (said or done.stderr.splitlines() or ["failed"])[-1] if done.returncode else ""
            if fault:
                results.keep_trace(f"sanitizer {tool}", done.stdout + done.stderr)
            results.add(Row("sanitizer", tool, notes={"kernels": len(kernels)}, fault=fault))

    def profile(
        self, results: Results, folder: Path, device: str, end: float, kernels: Sequence[str]
    ) -> None:
        """Profiles ``kernels``, one by one, as text."""
        program = shutil.which(self.profiler)
        for name in kernels if program is not None else ():
            seconds = min(PROFILED, end - perf_counter())
            if seconds <= 0:
                return
            how = [str(program), "--clock-control", "none", *SECTIONS]
            done = _run([*how, *_once(folder, device, [name])], seconds)
            said = f"{LATE}\n" if done is None else done.stdout + done.stderr
            for place in results.folders:
                with (place / DETAILS).open("a") as file:
                    file.write(f"== {name}\n{said}\n")
            late = done is None or done.returncode != 0
            print(f"ncu {name}: {'failed' if late else 'kept'} in {DETAILS}", flush=True)


def _once(folder: Path, device: str, kernels: Sequence[str]) -> Sequence[str]:
    """The command that runs kernels once."""
    names = [word for name in kernels for word in ("--once", name)]
    run = [sys.executable, "-m", "benchmarks.gpu", str(folder), "--device", device]
    return [*run, *names]


def _run(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str] | None:
    """None if it takes longer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return None


PROGRAMS = Programs()
