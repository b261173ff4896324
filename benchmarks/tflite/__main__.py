"""TFLite's models by modelcc and by LiteRT with XNNPACK, in turns on one core: processor time.

::

    python -m benchmarks.tflite models/*_int8.tflite --cpu x86-64-v3

Both are called from Python with NumPy's arrays.  Results are compared with LiteRT's reference
kernels first.  ``--cpu`` (any number of times) compiles for that processor beside this one; LiteRT
always uses all that this one has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.tflite.engines import (
    Delegation,
    compiled,
    delegation,
    interpreter,
    litert,
    random_feeds,
    reference_results,
)
from benchmarks.tflite.turns import Timing, measure, ratio
from modelcc.ir.types import Array

PEER = "LiteRT"
HERE = "modelcc"


@dataclass(frozen=True)
class Row:
    """A model: timings by engine, and the difference from the reference in quantisation steps, if
    it runs."""

    model: str
    delegation: Delegation
    timings: dict[str, Timing]
    error: float | None

    def ratio(self, engine: str) -> float:
        """LiteRT's time relative to ours."""
        return ratio(self.timings[engine], self.timings[PEER])

    def facts(self) -> dict[str, object]:
        """As JSON data."""
        ours = [name for name in self.timings if name != PEER]
        return {
            "model": self.model, "nodes": self.delegation.nodes,
            "delegated": self.delegation.delegated, "error": self.error,
            "least": {name: t.least for name, t in self.timings.items()},
            "median": {name: t.median for name, t in self.timings.items()},
            "ratio": {name: self.ratio(name) for name in ours},
        }  # fmt: skip


def row(path: Path, cpus: Sequence[str], turns: int, seconds: float, seed: int) -> Row:
    """Compiles a model, compares its results, measures it."""
    feeds = random_feeds(path, seed)
    delegating = interpreter(path)
    ours = {HERE: compiled(path, None, feeds)}
    ours |= {f"{HERE} {cpu}": compiled(path, cpu, feeds) for cpu in cpus}
    wanted = reference_results(path, feeds)
    error = None if wanted is None else max(_error(own(), wanted) for own in ours.values())
    timings = measure({PEER: litert(delegating, feeds), **ours}, turns, seconds)
    return Row(path.stem, delegation(delegating), timings, error)


def _error(ours: list[Array], wanted: list[Array]) -> float:
    """The largest difference of the first call's results: in steps, or relative to the largest
    float."""
    worst = 0.0
    for own, right in zip(ours, wanted, strict=True):
        apart = np.abs(own.astype(np.float64) - right.astype(np.float64)).max(initial=0)
        size = np.abs(right).max(initial=0) if right.dtype.kind == "f" else 1
        worst = max(worst, float(apart / (size or 1)))
    return worst


def show(rows: Sequence[Row]) -> None:
    """A table, followed by the geometric mean and the minimum of each of ours."""
    engines = list(rows[0].timings)
    ours = [name for name in engines if name != PEER]
    columns = [f"{name} µs" for name in engines]
    table = Table("model", "XNNPACK", *columns, *(f"x {name}" for name in ours), "error")
    for one in rows:
        times = [f"{one.timings[name].least:.1f}" for name in engines]
        ratios = [f"{one.ratio(name):.2f}" for name in ours]
        part = f"{one.delegation.delegated} of {one.delegation.nodes}"
        error = "no reference" if one.error is None else f"{one.error:.2g}"
        table.add_row(one.model, part, *times, *ratios, error)
    console = Console()
    console.print(table)
    for name in ours:
        found = [one.ratio(name) for one in rows]
        mean = statistics.geometric_mean(found)
        console.print(f"{name}: geometric mean {mean:.2f}, least {min(found):.2f}")


def main() -> None:
    """Measure and print, on the last core that there is."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tflite", description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--cpu", action="append", default=[], metavar="NAME")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.02, help="of each turn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    asked = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rows = [row(p, asked.cpu, asked.turns, asked.seconds, asked.seed) for p in asked.models]
    show(rows)
    if asked.json:
        asked.json.write_text(json.dumps([one.facts() for one in rows], indent=1))


if __name__ == "__main__":
    main()
