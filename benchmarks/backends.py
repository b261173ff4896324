"""Every model of a folder through both back ends, LLVM and C, and how far their results differ.

    python -m benchmarks.backends --folder models [--only NAME ...] [--threads 1]

Each model runs in a process of its own, so that one that fails does not stop the others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

import modelcc
from benchmarks.feeds import feeds_for
from modelcc.verification.comparison import compare

TARGETS = ("native", "c")
_RUNS = 5


@dataclass(frozen=True)
class Outcome:
    """One model through both back ends: largest relative error, seconds to compile and to run by
    target."""

    name: str
    relative: float = 0.0
    agrees: bool = False
    compile_s: tuple[float, ...] = ()
    run_s: tuple[float, ...] = ()
    problem: str = ""

    def row(self) -> str:
        """A line of the table."""
        if self.problem:
            return f"{self.name:<40} {self.problem[:110]}"
        error = f"{self.relative:9.2e} {'' if self.agrees else 'DIFFERS'}"
        times = "".join(f" {s:9.1f}" for s in self.compile_s)
        runs = "".join(f" {1e3 * s:10.2f}" for s in self.run_s)
        return f"{self.name:<40} {error:<17}{times}{runs}"


HEAD = (
    f"{'model':<40} {'max rel err':<17} {'llvm (s)':>9} {'C (s)':>9}"
    f" {'llvm (ms)':>10} {'C (ms)':>10}"
)


def measure(path: Path, threads: int, cache: str | None) -> Outcome:
    """The model in ``path`` through both back ends, on the same random inputs."""
    feeds = feeds_for(path, {})
    results: list[dict[str, np.ndarray]] = []
    compiling: list[float] = []
    running: list[float] = []
    for target in TARGETS:
        start = perf_counter()
        model = modelcc.compile(str(path), target, threads=threads, cache=cache)
        compiling.append(perf_counter() - start)
        results.append(model.run(feeds))
        running.append(min(_seconds(model, feeds) for _ in range(_RUNS)))
    found = [compare(name, results[1][name], want) for name, want in results[0].items()]
    worst = max((d.relative for d in found), default=0.0)
    problem = next((str(d) for d in found if d.problem), "")
    agrees = all(d.agrees for d in found)
    if any(np.isnan(want).any() for want in results[0].values() if want.dtype.kind == "f"):
        problem = problem or "NaN in the outputs: they tell nothing"
    return Outcome(path.stem, worst, agrees, tuple(compiling), tuple(running), problem)


def _seconds(model: modelcc.Model, feeds: dict[str, np.ndarray]) -> float:
    start = perf_counter()
    model.run(feeds)
    return perf_counter() - start


def _isolated(path: Path, threads: int, cache: str | None, limit: float) -> Outcome:
    command = [sys.executable, "-m", "benchmarks.backends", "--one", str(path)]
    command += ["--threads", str(threads), *(["--cache", cache] if cache else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return Outcome(path.stem, problem=f"takes longer than {limit:.0f} s")
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        return Outcome(path.stem, problem=last[0])
    return Outcome(**json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    """Print the table; the exit status is 1 if results differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("models"))
    parser.add_argument("--only", nargs="*", default=[], help="names of models")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", default=None, help="folder to keep compiled code in")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one model")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one is not None:
        print(json.dumps(asdict(measure(asked.one, asked.threads, asked.cache))))
        return 0
    paths = sorted(asked.folder.glob("*.onnx"), key=lambda path: path.stat().st_size)
    print(HEAD, flush=True)
    failed = False
    for path in paths:
        if asked.only and path.stem not in asked.only:
            continue
        outcome = _isolated(path, asked.threads, asked.cache, asked.limit)
        print(outcome.row(), flush=True)
        failed |= not (outcome.agrees or outcome.problem)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
