"""What compiling with modelcc costs, cold and from the cache, each in a process of its own.

`python -m benchmarks.compilation MODEL THREADS CACHE [OUT.mcc]` compiles once and prints, as JSON,
the seconds until the model can be called and the peak memory of the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
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
    """Seconds of `modelcc.compile` without and with its cache, and the first one's peak memory."""

    cold_seconds: float
    cached_seconds: float
    peak_bytes: int


def compile_apart(model: Path, threads: int, out: Path, timeout: float) -> Compilation | Failed:
    """Compiles `model` on all cores to run on `threads`, into the file `out`."""
    with TemporaryDirectory() as cache:
        cold = _in_process((str(model), str(threads), cache, str(out)), timeout)
        if isinstance(cold, Failed):
            return cold
        cached = _in_process((str(model), str(threads), cache), timeout)
        if isinstance(cached, Failed):
            return cached
    return Compilation(cold["seconds"], cached["seconds"], cold["peak_bytes"])


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


def main(model: str, threads: str, cache: str, out: str = "") -> None:
    """See the module."""
    start = time.perf_counter()
    net = modelcc.compile(model, threads=int(threads), cache=cache)
    seconds = time.perf_counter() - start
    peak = peak_bytes()
    if out:
        net.save(out)
    print(json.dumps({"seconds": seconds, "peak_bytes": peak}))


if __name__ == "__main__":
    main(*sys.argv[1:])
