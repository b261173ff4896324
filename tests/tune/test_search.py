"""The search, on times that are made up: what is measured, what is kept, what is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

from modelcc.driver import pipeline, target_of
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import Parts, Schedule, Tiled
from modelcc.schedule.text import print_schedule
from modelcc.targets.base import Workplace
from modelcc.targets.native.target import NativeTarget
from modelcc.tune.database import Database, State
from modelcc.tune.measurement import Times, WorkerError
from modelcc.tune.search import Search, Task
from tests.schedule.test_listing import MODEL

DEFAULT = 1e-3
OPTIONS = Options(cpu="x86-64-v2")


class Fake:
    """Takes ``seconds`` of a schedule for its time; ``asked`` has what was measured."""

    def __init__(self, seconds: Callable[[Schedule], float]) -> None:
        self.seconds = seconds
        self.asked: list[str] = []

    def times(
        self, kernel: CanonicalKernel, default: Schedule, others: Sequence[Schedule]
    ) -> list[Times]:
        self.asked += map(print_schedule, others)
        own = [self.seconds(other) for other in others]
        return [Times(DEFAULT, time, DEFAULT / time) for time in own]

    def seconds_of(self, kernel: CanonicalKernel, schedule: Schedule) -> float:
        return DEFAULT


@pytest.fixture(scope="module")
def target() -> NativeTarget:
    found = target_of(OPTIONS)
    assert isinstance(found, NativeTarget)
    return found


@pytest.fixture(scope="module")
def tasks(target: NativeTarget) -> list[Task]:
    stages = before_block(pipeline(target, OPTIONS, Workplace()), "schedule")
    kernels = target.kernels(run_stages(stages, MODEL))
    return [Task(one.kernel, one.schedule, one.calls, one.nodes) for one in kernels]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "schedules.sqlite") as opened:
        yield opened


def search(measurer: Fake, database: Database, target: NativeTarget, batches: int = 99) -> Search:
    numbers = count()
    return Search(measurer, database, target.cpu, "m", lambda: next(numbers) >= batches)


def points(schedule: Schedule) -> int:
    """Points of the only tile."""
    assert isinstance(schedule, Parts)
    (part,) = schedule.parts
    if not isinstance(part, Tiled):
        return 0
    number = 1
    for _, size in part.tile:
        number *= size
    return number


def test_the_fastest_is_taken_and_nothing_is_measured_twice(
    tasks: list[Task], database: Database, target: NativeTarget
) -> None:
    def seconds(schedule: Schedule) -> float:
        return DEFAULT / (1 + points(schedule) % 5)

    first = Fake(seconds)
    (found,) = search(first, database, target).run(tasks)
    assert found.gain == pytest.approx(5) and points(found.best) % 5 == 4
    assert len(set(first.asked[:-1])) == len(first.asked[:-1]) == found.tried
    again = Fake(seconds)
    (same,) = search(again, database, target).run(tasks)
    assert same.best == found.best
    assert again.asked == [print_schedule(found.best)]  # to be sure that it still is


def test_what_is_slower_is_not_taken(
    tasks: list[Task], database: Database, target: NativeTarget
) -> None:
    (found,) = search(Fake(lambda _: DEFAULT * 1.01), database, target).run(tasks)
    assert (found.best, found.gain, found.saved) == (found.task.default, 1.0, 0.0)
    assert found.tried


def test_a_gain_that_is_not_there_again_is_not_taken(
    tasks: list[Task], database: Database, target: NativeTarget
) -> None:
    seen: set[Schedule] = set()

    def seconds(schedule: Schedule) -> float:
        once = schedule not in seen
        seen.add(schedule)
        return DEFAULT / 2 if once else DEFAULT

    (found,) = search(Fake(seconds), database, target, batches=2).run(tasks)
    assert found.best == found.task.default


@pytest.mark.parametrize(("hung", "state"), [(False, State.crashed), (True, State.hung)])
def test_candidates_that_crash_or_hang_are_set_aside(
    tasks: list[Task], database: Database, target: NativeTarget, hung: bool, state: State
) -> None:
    def seconds(schedule: Schedule) -> float:
        if points(schedule) % 2:
            raise WorkerError(hung)
        return DEFAULT / 2

    (found,) = search(Fake(seconds), database, target).run(tasks)
    assert found.failed and found.gain == pytest.approx(2) and points(found.best) % 2 == 0
    kept = database.measurements("m", found.task.key).values()
    assert sum(one.state is state for one in kept) == found.failed
    again = Fake(seconds)
    search(again, database, target).run(tasks)
    assert len(again.asked) == 1


def test_a_spent_budget_ends_the_search(
    tasks: list[Task], database: Database, target: NativeTarget
) -> None:
    measurer = Fake(lambda _: DEFAULT / 2)
    search(measurer, database, target, batches=0).run(tasks)
    assert measurer.asked == []
