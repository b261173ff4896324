"""Cost of compiling with modelcc, cold and from the cache, each in a separate process.

`python -m benchmarks.compilation MODEL THREADS CACHE [OUT.mcc [ACCURACY]]` compiles once (with an
empty OUT, keeps nothing) and prints, as JSON, the seconds until the model can be called, its CPU
seconds (including LLVM's processes) and the peak memory of the process.

`python -m benchmarks.compilation --table THREADS MODEL...` prints a table of both for many models.
Other load on the machine lengthens wall time, but hardly CPU time.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import modelcc
from benchmarks.messages import Failed
from benchmarks.worker import peak_bytes

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Compilation:
    """Seconds of `modelcc.compile` without and with its cache; CPU seconds and peak memory of the
    first."""

    cold_seconds: float
    cached_seconds: float
    peak_bytes: int
    cpu_seconds: float = 0.0


def compile_apart(
    model: Path, threads: int, out: Path, timeout: float, accuracy: str = "standard"
) -> Compilation | Failed:
    """Compiles `model` on all cores to run on `threads`, into the file `out`."""
    with TemporaryDirectory() as cache:
        cold = _in_process((str(model), str(threads), cache, str(out), accuracy), timeout)
        if isinstance(cold, Failed):
            return cold
        cached = _in_process((str(model), str(threads), cache, "", accuracy), timeout)
        if isinstance(cached, Failed):
            return cached
    return Compilation(cold["seconds"], cached["seconds"], cold["peak_bytes"], cold["cpu_seconds"])


def _in_process(arguments: tuple[str, ...], timeout: float) -> dict[str, Any] | Failed:
    command = (sys.executable, "-m", "benchmarks.compilation", *arguments)
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return Failed(f"not compiled within {timeout:.0f} s")
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return Failed(lines[-1])
    return json.loads(done.stdout.splitlines()[-1])


def main(model: str, threads: str, cache: str, out: str = "", accuracy: str = "standard") -> None:
    """See the module."""
    start, before = time.perf_counter(), _cpu_seconds()
    net = modelcc.compile(model, threads=int(threads), cache=cache, accuracy=accuracy)
    seconds = time.perf_counter() - start
    cpu, peak = _cpu_seconds() - before, peak_bytes()
    if out:
        net.save(out)
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu, "peak_bytes": peak}))


def _cpu_seconds() -> float:
    """CPU seconds of this process and its ended children."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    usages = [resource.getrusage(who) for who in both]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def table(threads: str, models: Sequence[str]) -> None:
    """Prints a Markdown table, a row for each of `models` as soon as it is measured."""
    print("| model | cold s | processor s | cached s | peak MiB |\n|---|---|---|---|---|")
    for model in models:
        with TemporaryDirectory() as folder:
            path = Path(model)
            found = compile_apart(path, int(threads), Path(folder) / "out.mcc", timeout=600)
        if isinstance(found, Failed):
            print(f"| {path.stem} | {found.reason} | | | |", flush=True)
            continue
        seconds = f"{found.cold_seconds:.1f} | {found.cpu_seconds:.1f} | {found.cached_seconds:.2f}"
        print(f"| {path.stem} | {seconds} | {found.peak_bytes >> 20} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--table":
        table(sys.argv[2], sys.argv[3:])
    else:
        main(*sys.argv[1:])
