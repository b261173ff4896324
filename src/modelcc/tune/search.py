"""Search for schedules under a budget: the kernels with the largest share of a model's time first.

A batch of candidates is measured in turns with the default.  If one is faster, the next batch
varies that one (coordinate descent).  Among the next candidates, those are measured first
whose similar ones were faster on other kernels: errors of an estimate are systematic.  Schedules in
the database are not measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import mean
from typing import Protocol

from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import Schedule, ScheduleError
from modelcc.schedule.text import parse_schedule, print_schedule
from modelcc.schedule.workload import workload_key
from modelcc.targets.cpu.candidates import candidates, fits, likeness
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.work import nanoseconds
from modelcc.tune.database import Database, Measurement, State
from modelcc.tune.measurement import Times, WorkerError

AHEAD = 18
"""Look-ahead of candidates of a kernel from which the next batch is chosen."""

BATCH = 6
"""Candidates measured together with the default."""

GAIN = 1.02
"""Minimum speedup for a schedule to be accepted."""

PATIENCE = 3
"""Batches without a gain after which a kernel is abandoned."""

CONFIRMATIONS = 2
"""Maximum number of confirming measurements of a kernel's best schedule, until one is faster again:
disturbances must not reject it, and in the model it has to be faster, too."""


@dataclass(frozen=True)
class Task:
    """A distinct kernel of a model, its number of calls, and its nodes."""

    kernel: CanonicalKernel
    default: Schedule
    calls: int
    nodes: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The workload's key."""
        return workload_key(self.kernel)

    @property
    def estimate(self) -> float:
        """Estimated nanoseconds of all calls, before any measurement."""
        return self.calls * nanoseconds(self.kernel.stages, dict(self.kernel.types))


@dataclass(frozen=True)
class Doubt:
    """A schedule with a speedup of ``first`` over the default in the search and of ``again`` when
    measured again."""

    schedule: Schedule
    first: float
    again: float


@dataclass(frozen=True)
class SearchResult:
    """The result of a task: ``seconds`` of its default, and the best schedule with its speedup
    ``gain``; ``doubt`` is a schedule that was not confirmed."""

    task: Task
    seconds: float
    best: Schedule
    gain: float = 1.0
    tried: int = 0
    failed: int = 0
    doubt: Doubt | None = None

    @property
    def saved(self) -> float:
        """Seconds per run of the model saved by the best schedule."""
        return self.task.calls * self.seconds * (1 - 1 / self.gain)


class Measurer(Protocol):
    """Times schedules."""

    def times(
        self, kernel: CanonicalKernel, default: Schedule, others: Sequence[Schedule]
    ) -> list[Times]:
        """Times of each of the ``others`` in turns with the ``default``."""
        ...

    def seconds_of(self, kernel: CanonicalKernel, schedule: Schedule) -> float:
        """Seconds of one schedule by itself."""
        ...


@dataclass
class _Open:
    """A task in progress: remaining candidates, the look-ahead of them, those tried, and batches
    since the last gain."""

    found: SearchResult
    left: Iterator[Schedule]
    ahead: list[Schedule] = field(default_factory=list[Schedule])
    seen: set[Schedule] = field(default_factory=set[Schedule])
    idle: int = 0
    batches: int = 0

    @property
    def weight(self) -> float:
        """Rough potential gain of the next batch."""
        return self.found.task.calls * self.found.seconds / (1 + self.batches + 2 * self.idle)

    def batch(self, gains: Mapping[object, Sequence[float]]) -> list[Schedule]:
        """The next candidates, ordered by the mean gain of similar ones."""
        new = (schedule for schedule in self.left if schedule not in self.seen)
        self.ahead += islice(new, AHEAD - len(self.ahead))
        self.ahead.sort(key=lambda schedule: -mean(gains.get(likeness(schedule), (1.0,))))
        batch, self.ahead = self.ahead[:BATCH], self.ahead[BATCH:]
        self.seen.update(batch)
        return batch


@dataclass(frozen=True)
class Search:
    """Measures for the machine called ``name`` until ``over`` returns true: the budget is spent.

    ``report`` receives the result of a task after each batch.
    """

    measurer: Measurer
    database: Database
    machine: CpuModel
    name: str
    over: Callable[[], bool]
    report: Callable[[SearchResult], None] = field(default=lambda found: None)

    def run(self, tasks: Sequence[Task]) -> list[SearchResult]:
        """The results of all tasks that could be measured in time, ordered by the time of their
        kernels. Once ``over``, only the best schedule of each is confirmed."""
        work: list[_Open] = []
        for task in sorted(tasks, key=lambda task: -task.estimate):
            if self.over():
                break
            one = self._opened(task)
            work += [] if one is None else [one]
        waiting = list(work)
        gains: dict[object, list[float]] = {}
        while waiting and not self.over():
            one = max(waiting, key=lambda w: w.weight)
            if not self._batch(one, gains) or one.idle >= PATIENCE:
                waiting.remove(one)
            self.report(one.found)
        confirmed = [self._confirmed(self._as_before(one.found)) for one in work]
        return sorted(confirmed, key=lambda f: -f.task.calls * f.seconds)

    def _opened(self, task: Task) -> _Open | None:
        try:
            seconds = self.measurer.seconds_of(task.kernel, task.default)
        except WorkerError:
            return None
        found = SearchResult(task, seconds, task.default)
        self.report(found)
        return _Open(found, candidates(task.kernel, task.default, self.machine))

    def _batch(self, one: _Open, gains: dict[object, list[float]]) -> bool:
        """Measures the next candidates, and records their ``gains``; returns whether there were
        any."""
        batch = one.batch(gains)
        if not batch:
            return False
        known = self._known(one.found.task)
        new = [schedule for schedule in batch if print_schedule(schedule) not in known]
        fresh = self._measured(one.found.task, new) if new else []
        self.database.record(self.name, fresh)
        results = {**known, **{m.schedule: m for m in fresh}}
        for schedule in batch:
            gain = results[print_schedule(schedule)].gain
            gains.setdefault(likeness(schedule), []).append(0.0 if gain is None else gain)
        one.batches += 1
        before = one.found
        one.found = _better(before, batch, results)
        if one.found.best == before.best:
            one.idle += 1
            return True
        one.idle = 0
        task = one.found.task
        one.left = candidates(task.kernel, task.default, self.machine, one.found.best)
        one.ahead = []
        return True

    def _known(self, task: Task) -> Mapping[str, Measurement]:
        return over_default(self.database.measurements(self.name, task.key), task.default)

    def _measured(self, task: Task, schedules: Sequence[Schedule]) -> list[Measurement]:
        """Measures all of them in turns with the default; one by one if a worker fails, to find the
        culprit."""
        try:
            times = self.measurer.times(task.kernel, task.default, schedules)
        except WorkerError as error:
            if len(schedules) == 1:
                state = State.hung if error.hung else State.crashed
                return [Measurement(task.key, print_schedule(schedules[0]), state, 0.0, 0.0)]
            return [m for one in schedules for m in self._measured(task, (one,))]
        # The recorded values have the ratio of turns as their quotient.
        return [
            Measurement(
                task.key, print_schedule(one), State.measured, found.default / found.ratio,
                found.default,
            )
            for one, found in zip(schedules, times, strict=True)
        ]  # fmt: skip

    def _as_before(self, found: SearchResult) -> SearchResult:
        """With the best schedule of earlier runs, if time was too short to reach it again."""
        task = found.task
        gains = {text: one.gain or 0.0 for text, one in self._known(task).items()}
        for text in sorted(gains, key=lambda text: -gains[text]):
            if gains[text] <= found.gain * GAIN:
                break
            try:
                best = parse_schedule(text)
            except ScheduleError:
                continue
            if fits(task.kernel, best, self.machine):
                return replace(found, best=best, gain=gains[text])
        return found

    def _confirmed(self, found: SearchResult) -> SearchResult:
        """Its best schedule if confirmed to be faster, else the default."""
        if found.best == found.task.default:
            return found
        ratio = 0.0
        for _ in range(CONFIRMATIONS):
            ratio = max(ratio, self._ratio(found.task, found.best))
            if ratio >= GAIN:
                return replace(found, gain=ratio)
        doubt = Doubt(found.best, found.gain, ratio)
        return replace(found, best=found.task.default, gain=1.0, doubt=doubt)

    def _ratio(self, task: Task, schedule: Schedule) -> float:
        """Speedup over the default; 0 if its worker fails."""
        try:
            (times,) = self.measurer.times(task.kernel, task.default, (schedule,))
        except WorkerError:
            return 0.0
        return times.ratio


def over_default(known: Mapping[str, Measurement], default: Schedule) -> Mapping[str, Measurement]:
    """Measurements of a workload with gains relative to the present ``default``; that of another
    version of the compiler, or of other numbers of the machine, may have differed."""
    own = known.get(print_schedule(default))
    gain = None if own is None else own.gain
    if gain is None:
        return known
    return {text: replace(m, default=m.default / gain) for text, m in known.items()}


def _better(
    found: SearchResult, batch: Sequence[Schedule], results: Mapping[str, Measurement]
) -> SearchResult:
    """With the best of ``batch`` if it beats the previous best."""
    measured = [(results[print_schedule(schedule)], schedule) for schedule in batch]
    failed = sum(result.state is not State.measured for result, _ in measured)
    gains = [
        (result.default / result.seconds, schedule)
        for result, schedule in measured
        if result.state is State.measured and result.seconds
    ]
    tried = replace(found, tried=found.tried + len(batch), failed=found.failed + failed)
    gain, best = max(gains, key=lambda pair: pair[0], default=(0.0, found.best))
    return replace(tried, best=best, gain=gain) if gain > found.gain * GAIN else tried
