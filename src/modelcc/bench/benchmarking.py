"""Latency comparison of engines: interleaved, in separate processes, by medians."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from modelcc.artifact.json_values import Object, list_of, number_of, parsed_object, whole_number_of
from modelcc.bench.worker import ENGINES
from modelcc.feeds.npz import write_npz
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.targets.base import Progress

BATCH_SECONDS = 0.1
"""Target duration of an engine's turn: short runs are repeated within it."""


_START = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from modelcc.bench.worker import main
main(sys.argv[2:])
"""


@dataclass(frozen=True)
class EngineMeasurement:
    """One engine: seconds of all runs, to load (compile) and of the first run; peak bytes."""

    engine: str
    times: tuple[float, ...]
    load: float
    first: float
    peak: int
    outputs: Mapping[str, Array] = field(default_factory=dict[str, Array])

    @property
    def median(self) -> float:
        """Seconds of the median run."""
        return median(self.times)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, as a fraction of the median."""
        ordered = sorted(self.times)
        low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
        return (high - low) / 2 / self.median if self.median else 0.0


def measure(
    engines: Sequence[str],
    model: Path,
    feeds: Mapping[str, Array],
    options: Mapping[str, object],
    rounds: int,
    progress: Progress,
) -> tuple[EngineMeasurement, ...]:
    """Each engine on ``model``, taking turns for ``rounds`` rounds.

    :class:`ModelError` for an unknown engine, or one that fails, with its output.
    """
    unknown = [name for name in engines if name not in ENGINES]
    if unknown:
        hint = f"choose from {', '.join(ENGINES)}"
        raise ModelError(f"there is no engine {unknown[0]!r}", (), hint)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_npz(folder / "feeds.npz", feeds)
        workers: list[_EngineWorker] = []
        try:
            for engine in engines:
                progress("loading engines", len(workers), len(engines))
                workers.append(_EngineWorker(engine, model, folder, options))
            progress("loading engines", len(engines), len(engines))
            return _in_turns(workers, rounds, progress)
        finally:
            for worker in workers:
                worker.close()


def _in_turns(
    workers: Sequence[_EngineWorker], rounds: int, progress: Progress
) -> tuple[EngineMeasurement, ...]:
    progress("measuring", 0, rounds)
    counts = [_batch(worker) for worker in workers]
    for done in range(rounds):
        for worker, count in zip(workers, counts, strict=True):
            worker.run(count)
        progress("measuring", done + 1, rounds)
    return tuple(worker.measurement() for worker in workers)


def _batch(worker: _EngineWorker) -> int:
    """Number of runs that fill a turn; measuring them warms the engine up."""
    for count in (1, 3):
        worker.run(count)
    once = min(worker.times)
    worker.times.clear()
    return max(1, int(BATCH_SECONDS / max(once, 1e-9)))


class _EngineWorker:
    """The process of one engine."""

    def __init__(
        self, engine: str, model: Path, folder: Path, options: Mapping[str, object]
    ) -> None:
        self.engine = engine
        self.times: list[float] = []
        self._peak = 0
        self._outputs = folder / f"{engine}.npz"
        self._errors = (folder / f"{engine}.err").open("w+")
        files = [str(model), str(folder / "feeds.npz"), str(self._outputs)]
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _START,
                json.dumps(sys.path),
                engine,
                *files,
                json.dumps(options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        try:
            ready = self._receive()
        except ModelError:
            self.close()
            raise
        self._load, self._first = number_of(ready["load"]), number_of(ready["first"])

    def run(self, count: int) -> None:
        """Run ``count`` times."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{count}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its final output is reported by the next line
        reply = self._receive()
        self.times += list_of(reply["times"], number_of)
        self._peak = whole_number_of(reply["peak"])

    def measurement(self) -> EngineMeasurement:
        """Everything measured."""
        with np.load(self._outputs, allow_pickle=False) as archive:
            outputs = {name: archive[name] for name in archive.files}
        times = tuple(self.times)
        return EngineMeasurement(self.engine, times, self._load, self._first, self._peak, outputs)

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _receive(self) -> Object:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            return parsed_object(line)
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        raise ModelError(f"engine {self.engine} failed: {lines[-1] if lines else 'without a word'}")
