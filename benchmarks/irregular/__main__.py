"""Operators whose work depends on data, transforms, products of what comes at run time:
``python -m benchmarks.irregular``.

Each model, with a named extent n, is compiled once and runs at n, 4 n and 16 n by turns with ONNX
Runtime in one process; sorts and transforms with NumPy or SciPy, too.  ``growth`` is the time at
16 n over that at n: 16 is linear.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import geometric_mean, median

import click
import onnxruntime

import modelcc
from benchmarks.irregular import choices, images, integers, moves, products, sorts

SECONDS = 0.6
"""Measured for each size of each model."""

PAUSE = 0.1
"""Seconds before an engine's turn on several threads.  ONNX Runtime's threads go on looking for
work for tens of milliseconds, and would take the cores of what runs next."""

TURN = 5
"""Timed runs of a turn on several threads, after one that wakes the engine's own threads."""

FAMILIES = (moves, sorts, images, integers, products, choices)
CASES = {name: case for family in FAMILIES for name, case in family.CASES.items()}


@dataclass(frozen=True)
class Turns:
    """How engines take turns: ``pause`` seconds before each, ``idle`` runs that are not timed,
    then ``timed`` ones."""

    clock: Callable[[], float]
    pause: float = 0.0
    idle: int = 0
    timed: int = 1

    def times(self, runs: Sequence[Callable[[], object]]) -> list[float]:
        """Median seconds of each."""
        for run in runs:
            run()
        start = self.clock()
        for run in runs:
            run()
        each = (self.clock() - start) * (self.idle + self.timed) + self.pause * len(runs)
        rounds = min(2000, max(9, int(SECONDS / max(1e-6, each))))
        found: list[list[float]] = [[] for _ in runs]
        for _ in range(rounds):
            for run, times in zip(runs, found, strict=True):
                times += self._turn(run)
        return [median(times) for times in found]

    def _turn(self, run: Callable[[], object]) -> Iterator[float]:
        time.sleep(self.pause)
        for _ in range(self.idle):
            run()
        for _ in range(self.timed):
            start = self.clock()
            run()
            yield self.clock() - start


def _turns(threads: int) -> Turns:
    """On one thread, the time that other work takes does not count."""
    if threads == 1:
        return Turns(time.process_time)
    return Turns(time.perf_counter, PAUSE, idle=1, timed=TURN)


@click.command()
@click.option("--threads", default=1, show_default=True)
@click.option("--only", default="", help="Regular expression that names must contain.")
def main(threads: int, only: str) -> None:
    """Milliseconds at 16 n, growth from n, and how many times as long the others take."""
    turns = _turns(threads)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    ratios: list[float] = []
    columns = f"{'':24}{'n':>7}{'16 n: ms':>10}{'growth':>8}"
    click.echo(f"{columns}   onnxruntime at n, 4 n, 16 n   NumPy or SciPy")
    for name, case in CASES.items():
        if not re.search(only, name):
            continue
        model = case.model()
        net = modelcc.compile(model, threads=threads, cache=None)
        peer = onnxruntime.InferenceSession(model.SerializeToString(), settings)
        rows: list[list[float]] = []
        for size in (case.least, 4 * case.least, 16 * case.least):
            feeds = case.inputs(size)
            runs = [partial(net.run, feeds), partial(peer.run, None, feeds)]
            if case.library is not None:
                runs.append(partial(case.library, feeds))
            rows.append(turns.times(runs))
        own = [row[0] for row in rows]
        peers = [row[1] / row[0] for row in rows]
        ratios += peers
        others = "".join(f"{row[2] / row[0]:8.2f}" for row in rows if len(row) > 2)
        click.echo(
            f"{name:24}{case.least:7}{1e3 * own[-1]:10.3f}{own[-1] / own[0]:8.1f}   "
            f"{''.join(f'{ratio:8.2f}' for ratio in peers)}      {others}"
        )
    click.echo(f"geometric mean against onnxruntime: {geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
