"""The search, on times that are made up: what is measured, what is kept, what is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import onnx.parser
import pytest

from modelcc.driver import pipeline, target_of
from modelcc.model_tuning.above import tasks_of
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import Parts, Schedule, Tiled
from modelcc.schedule.text import parse_schedule, print_schedule
from modelcc.schedule.workload import workload_key
from modelcc.targets.base import BuildConfig
from modelcc.targets.cpu.candidates import candidates, likeness
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.tune.database import Database, Measurement, State
from modelcc.tune.measurement import Times, WorkerError
from modelcc.tune.search import AHEAD, BATCH, Search, Task
from tests.schedule.test_listing import MODEL

DEFAULT = 1e-3
OPTIONS = Options(cpu="x86-64-v2")


class Fake:
    """Takes ``seconds`` of a schedule for its time; ``asked`` has what was measured."""

    def __init__(self, seconds: Callable[[Schedule], float]) -> None:
        self.seconds = seconds
        self.asked: list[str] = []
        self.batches: list[tuple[str, list[str]]] = []

    def times(
        self, kernel: CanonicalKernel, default: Schedule, others: Sequence[Schedule]
    ) -> list[Times]:
        self.asked += map(print_schedule, others)
        self.batches.append((workload_key(kernel), list(map(print_schedule, others))))
        own = [self.seconds(other) for other in others]
        return [Times(DEFAULT, time, DEFAULT / time) for time in own]

    def seconds_of(self, kernel: CanonicalKernel, schedule: Schedule) -> float:
        return DEFAULT


@pytest.fixture(scope="module")
def target() -> CpuTarget:
    found = target_of(OPTIONS)
    assert isinstance(found, CpuTarget)
    return found


@pytest.fixture(scope="module")
def tasks(target: CpuTarget) -> list[Task]:
    stages = before_block(pipeline(target, OPTIONS, BuildConfig()), "schedule")
    kernels = target.kernels(run_stages(stages, MODEL))
    return [Task(one.kernel, one.schedule, one.calls, one.nodes) for one in kernels]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "schedules.sqlite") as opened:
        yield opened


def search(measurer: Fake, database: Database, target: CpuTarget, batches: int = 99) -> Search:
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
    tasks: list[Task], database: Database, target: CpuTarget
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


def test_what_disturbs_once_costs_no_schedule(
    tasks: list[Task], database: Database, target: CpuTarget
) -> None:
    class Disturbed(Fake):
        left = 1

        def times(
            self, kernel: CanonicalKernel, default: Schedule, others: Sequence[Schedule]
        ) -> list[Times]:
            again = print_schedule(others[0]) in self.asked
            found = super().times(kernel, default, others)
            if not again or not self.left:
                return found
            self.left -= 1
            return [Times(DEFAULT, DEFAULT, 1.0)]

    measurer = Disturbed(lambda schedule: DEFAULT / (1 + points(schedule) % 5))
    (found,) = search(measurer, database, target).run(tasks)
    assert measurer.left == 0 and found.gain == pytest.approx(5)


def test_gains_over_another_default_are_none_over_the_best(
    tasks: list[Task], database: Database, target: CpuTarget
) -> None:
    def seconds(schedule: Schedule) -> float:
        return DEFAULT / (1 + points(schedule) % 5)

    (found,) = search(Fake(seconds), database, target).run(tasks)
    known = database.measurements("m", found.task.key).keys()
    better = replace(found.task, default=found.best)
    measurer = Fake(lambda schedule: seconds(schedule) * found.gain)
    (again,) = search(measurer, database, target).run([better])
    assert again.best == found.best and again.gain == 1.0
    assert not known & set(measurer.asked)  # not even once more, to be sure of a gain


def test_what_is_slower_is_not_taken(
    tasks: list[Task], database: Database, target: CpuTarget
) -> None:
    (found,) = search(Fake(lambda _: DEFAULT * 1.01), database, target).run(tasks)
    assert (found.best, found.gain, found.saved) == (found.task.default, 1.0, 0.0)
    assert found.tried


def test_a_gain_that_is_not_there_again_is_not_taken(
    tasks: list[Task], database: Database, target: CpuTarget
) -> None:
    seen: set[Schedule] = set()

    def seconds(schedule: Schedule) -> float:
        once = schedule not in seen
        seen.add(schedule)
        return DEFAULT / 2 if once else DEFAULT

    (found,) = search(Fake(seconds), database, target, batches=2).run(tasks)
    assert found.best == found.task.default


def test_a_search_goes_on_from_the_best_of_an_earlier_one(
    tasks: list[Task], database: Database, target: CpuTarget
) -> None:
    """Without any time left, too; what cannot be read any more is passed over."""

    def seconds(schedule: Schedule) -> float:
        return DEFAULT / (1 + points(schedule) / 100)

    (first,) = search(Fake(seconds), database, target).run(tasks)
    task = first.task
    database.record("m", [Measurement(task.key, "gone(x=1)", State.measured, 0.1, 9.0)])
    again = Fake(seconds)
    (second,) = search(again, database, target, batches=1).run(tasks)
    assert second.best != task.default and second.gain >= first.gain
    assert again.asked == [print_schedule(second.best)]


@pytest.mark.parametrize(("hung", "state"), [(False, State.crashed), (True, State.hung)])
def test_candidates_that_crash_or_hang_are_set_aside(
    tasks: list[Task], database: Database, target: CpuTarget, hung: bool, state: State
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
    tasks: list[Task], database: Database, target: CpuTarget
) -> None:
    measurer = Fake(lambda _: DEFAULT / 2)
    search(measurer, database, target, batches=0).run(tasks)
    assert measurer.asked == []


PAIR = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["" : 18]>
    g (float[24, 40] x, float[40, 36] w, float[240, 80] u, float[80, 360] v)
      => (float[24, 36] y, float[240, 360] z) { y = MatMul(x, w) z = MatMul(u, v) }"""
)


def test_what_was_fast_on_one_kernel_is_tried_first_on_others(
    database: Database, target: CpuTarget
) -> None:
    tasks = [one for one in tasks_of(PAIR, OPTIONS) if any(s.reduce for s in one.kernel.stages)]
    large, small = sorted(tasks, key=lambda task: -task.estimate)
    common = {likeness(s) for s in listed(small, target)[BATCH:AHEAD]}
    common -= {likeness(s) for s in listed(small, target)[:BATCH]}
    fast = next(likeness(s) for s in listed(large, target) if likeness(s) in common)
    measurer = Fake(lambda s: DEFAULT / 2 if likeness(s) == fast else DEFAULT)
    found = search(measurer, database, target).run([replace(large, calls=1000), small])
    assert all(likeness(one.best) == fast for one in found)
    first = next(texts for key, texts in measurer.batches if key == small.key)
    assert likeness(parse_schedule(first[0])) == fast


def listed(task: Task, target: CpuTarget) -> list[Schedule]:
    """What would be measured, if nothing were known of other kernels."""
    return list(islice(candidates(task.kernel, task.default, target.cpu), AHEAD))
