"""Tuning a model: schedules measured kernel by kernel, then together in the whole model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter

from modelcc.driver import NOWHERE, ModelSource, compile_model, pipeline, target_of
from modelcc.ir.op import ModelError
from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.schedule.schedule import Schedule
from modelcc.schedule.text import print_schedule
from modelcc.targets.base import Workplace
from modelcc.targets.native.target import NativeTarget
from modelcc.tune.database import Database
from modelcc.tune.measurement import Measurer, Worker
from modelcc.tune.search import Found, Search, Task

SHARE = 0.8
"""Of the budget for candidates of kernels; the rest is for the model as a whole, which may take
longer."""

TURNS = 15
"""Runs of the model by each of the two, at least, to compare them."""

LEAST_BUDGET = 5.0
"""Seconds in which something can be measured at all."""


@dataclass(frozen=True)
class Request:
    """What to tune, on which inputs, and for about how many seconds; ``database`` is the file to
    keep measurements in."""

    model: ModelSource
    options: Options
    feeds: Mapping[str, Array]
    database: Path
    budget: float
    workplace: Workplace = NOWHERE
    report: Callable[[Found], None] = field(default=lambda found: None)


@dataclass(frozen=True)
class Tuning:
    """What was found: kernels by the time they take, the schedules that were taken, and seconds
    of a run of the model by default and with them."""

    machine: str
    kernels: tuple[Found, ...]
    schedules: Mapping[str, Schedule]
    default: float
    tuned: float

    @property
    def gain(self) -> float:
        """How many times faster the model is."""
        return self.default / self.tuned

    @property
    def text(self) -> str:
        """The schedules as a file for ``--schedule``."""
        return listing_text(self.schedules)


def listing_text(schedules: Mapping[str, Schedule]) -> str:
    """Schedules by the keys of their kernels, as a text."""
    lines = (f"kernel {key}: {print_schedule(one)}" for key, one in sorted(schedules.items()))
    return "".join(f"{line}\n" for line in lines)


def tune_model(request: Request) -> Tuning:
    """Search schedules for the kernels of a model, take those with which it ran faster than by
    default, in turns with it, and note them in the database.

    They take the place of what was chosen for these kernels, by tuning other models perhaps.
    It may be stopped at any moment and goes on where it was.  :class:`ModelError` if the target
    has no kernels to measure, or the budget is too small.
    """
    if request.budget < LEAST_BUDGET:
        least = f"at least {LEAST_BUDGET:.0f} s"
        raise ModelError(f"a budget of {request.budget:g} s is too small", (), f"give {least}")
    start = monotonic()
    options = replace(request.options, schedule="", tuned=False)
    target = target_of(options)
    if not isinstance(target, NativeTarget):
        raise ModelError(f"kernels of target {target.name!r} cannot be measured here")
    tasks = tasks_of(request.model, options, target)
    with Database.open(request.database) as database, Worker() as worker:

        def over() -> bool:
            return monotonic() - start > SHARE * request.budget

        measurer = Measurer(target, request.workplace, worker)
        name = target.tuning_key
        search = Search(measurer, database, target.cpu, name, over, request.report)
        found = search.run(tasks)
        better = [one for one in found if one.best != one.task.default]
        taken, default, tuned = _together(request, options, better)
        left = {one.task.key: "" for one in found}
        database.choose(name, left | {key: print_schedule(s) for key, s in taken.items()})
    return Tuning(name, tuple(found), taken, default, tuned)


def tasks_of(model: ModelSource, options: Options, target: NativeTarget) -> list[Task]:
    """The distinct kernels of a model."""
    stages = before_block(pipeline(target, options, NOWHERE), "schedule")
    program = run_stages(stages, model)
    return [Task(one.kernel, one.schedule, one.calls, one.nodes) for one in target.kernels(program)]


def _together(
    request: Request, options: Options, better: Sequence[Found]
) -> tuple[Mapping[str, Schedule], float, float]:
    """The schedules with which the whole model is faster, and its seconds without and with them.

    Where all are not, half of them are left out, those that save least, and so on.
    """
    ranked = sorted(better, key=lambda one: -one.saved)
    default, run = 0.0, _session(request, options)
    while ranked:
        schedules = {one.task.key: one.best for one in ranked}
        tuned = _session(request, replace(options, schedule=listing_text(schedules)))
        default, own, ratio = _in_turns(run, tuned)
        if ratio > 1.0:
            return schedules, default, own
        ranked = ranked[: len(ranked) // 2]
    default = default or _in_turns(run, run)[0]
    return {}, default, default


def _session(request: Request, options: Options) -> Callable[[], object]:
    compiled = compile_model(request.model, options, request.workplace)
    session = compiled.target.load(compiled.artifact, options.threads)
    return lambda: session.run(request.feeds)


def _in_turns(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, ...]:
    """Median seconds of both, and the median of their ratios."""
    times: list[tuple[float, float]] = []
    for _ in range(TURNS + 1):
        times.append((_seconds(first), _seconds(second)))
    warm = times[1:]
    one, other = median(a for a, _ in warm), median(b for _, b in warm)
    return one, other, median(a / b for a, b in warm)


def _seconds(run: Callable[[], object]) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start
