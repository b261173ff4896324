"""Engines in separate processes, prepared concurrently, then timed in turns.

Failures, timeouts and crashes affect only their own row: the process is killed, and the next query
starts a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.engine_worker import Refused, Worker

ROUNDS = 5
AHEAD = 8
"""Maximum queued queries per process."""

MEASURE_LIMIT = 30.0
"""Time limit in seconds of one round."""

PROCESSES: Mapping[str, str] = {
    **dict.fromkeys(("copy", "cublas", "eager", "inductor", "flash", "cudnn", "fa3"), "kernels"),
}
"""Engines that share a process; others have their own."""


@dataclass(frozen=True)
class Task:
    """A row to come; ``section`` says where its name is looked up."""

    section: str
    name: str


@dataclass(frozen=True)
class Opened:
    """An engine that is ready; ``error`` if it was compared, and a description if it is too
    large."""

    error: float | None = None
    notes: Mapping[str, float] = field(default_factory=dict[str, float])
    trace: str = ""


@dataclass(frozen=True)
class Failed:
    """An engine's reason for not running a row; ``missing`` if it cannot run any.  ``trace`` is the
    traceback."""

    reason: str
    missing: bool = False
    trace: str = ""


Asked = tuple[Task, str]
"""A row and an engine."""

Answers = Mapping[Asked, Opened | Failed]


class Turns:
    """Processes that run ``serve`` with a connection and ``arguments``, by engine and place;
    ``kept`` receives the traces of failures."""

    def __init__(
        self,
        serve: Callable[..., None],
        arguments: Sequence[Any],
        limit: float,
        kept: Callable[[str, str], None] = lambda name, trace: None,
    ) -> None:
        self._serve, self._arguments, self._limit = serve, arguments, limit
        self._kept = kept
        self._workers: dict[tuple[str, int], Worker] = {}
        self.missing: dict[str, str] = {}

    def close(self) -> None:
        """Ends all processes."""
        for key in tuple(self._workers):
            self._end(key)

    def _end(self, key: tuple[str, int]) -> None:
        self._workers.pop(key).close()

    def _worker(self, key: tuple[str, int]) -> Worker:
        if key not in self._workers:
            self._workers[key] = Worker(self._serve, self._arguments, self._limit)
        return self._workers[key]

    def _answer(self, key: tuple[str, int], engine: str, task: Task, limit: float) -> Any:
        """The next answer, about ``task``; a process without one is killed."""
        if key not in self._workers:
            return Failed("the process ended")
        found = self._workers[key].answer(limit)
        if isinstance(found, Refused):
            self._end(key)
            return Failed(found.reason)
        if isinstance(found, Failed) and found.missing:
            self.missing[engine] = found.reason
        if isinstance(found, Opened | Failed) and found.trace:
            self._kept(f"{task.section} {task.name} by {engine}", found.trace)
        return found

    def opened(self, asked: Sequence[Sequence[Asked]], end: float) -> dict[Asked, Opened | Failed]:
        """All concurrently, those of one place of ``asked`` sequentially in its processes; nothing
        is awaited after ``end`` or longer than the limit.  A single-engine process in which a row
        failed is not reused."""
        keys: list[tuple[tuple[str, int], Asked]] = []
        for place, some in enumerate(asked):
            for task, engine in some:
                if engine not in self.missing:
                    key = PROCESSES.get(engine, engine), place
                    self._worker(key).tell(("open", engine, task))
                    keys.append((key, (task, engine)))
        end = min(end, perf_counter() + self._limit)
        found: dict[Asked, Opened | Failed] = {}
        for key, one in keys:
            task, engine = one
            found[one] = answer = self._answer(key, engine, task, max(end - perf_counter(), 0.0))
            own = engine not in PROCESSES and key in self._workers
            if own and isinstance(answer, Failed) and not answer.missing:
                self._end(key)
        return found

    def profile(self, task: Task, engine: str, place: int) -> Any:
        """The kernel profile of an opened engine, which then forgets the row."""
        found = self._asked(engine, place, task, "profile")
        self.forget(task, engine, place)
        return found

    def forget(self, task: Task, engine: str, place: int) -> None:
        """Releases a row."""
        self._asked(engine, place, task, "forget")

    def each(self, tasks: Sequence[Task], engine: str, places: int, limit: float,
             end: float) -> Iterator[tuple[Task, Opened | Failed]]:  # fmt: skip
        """Many rows that are checked and forgotten, ``places`` of them concurrently; a process in
        which one failed is not reused."""
        left = {place: list(tasks[place::places]) for place in range(places)}
        told = dict.fromkeys(left, 0)

        def ask(place: int) -> None:
            for task in left[place][told[place] : AHEAD]:
                self._worker((engine, place)).tell(("check", engine, task))
            told[place] = min(len(left[place]), AHEAD)

        while any(left.values()) and perf_counter() < end:
            for place in left:
                ask(place)
            for place, some in left.items():
                if not some:
                    continue
                key = engine, place
                within = min(limit, max(end - perf_counter(), 0.0))
                found = self._answer(key, engine, some[0], within)
                if perf_counter() >= end:
                    break
                yield some.pop(0), found
                told[place] -= 1
                if isinstance(found, Failed):
                    if key in self._workers:
                        self._end(key)
                    told[place] = 0
        for place, waiting in told.items():
            if waiting and (engine, place) in self._workers:
                self._end((engine, place))  # it has abandoned queries

    def times(
        self, task: Task, engines: Sequence[str], place: int
    ) -> tuple[dict[str, float], dict[str, str]]:
        """Median seconds of opened engines, which then forget the row; and failures."""
        found: dict[str, list[float]] = {name: [] for name in engines}
        failed: dict[str, str] = {}
        for _ in range(ROUNDS):
            for engine in engines:
                if engine in failed:
                    continue
                answer = self._asked(engine, place, task, "measure")
                if isinstance(answer, Failed):
                    failed[engine] = answer.reason
                else:
                    found[engine].append(answer)
        for engine in found.keys() - failed.keys():
            self.forget(task, engine, place)
        return {n: median(taken) for n, taken in found.items() if n not in failed}, failed

    def _asked(self, engine: str, place: int, task: Task, kind: str) -> Any:
        key = PROCESSES.get(engine, engine), place
        if key in self._workers:
            self._workers[key].tell((kind, engine, task))
        return self._answer(key, engine, task, MEASURE_LIMIT)
