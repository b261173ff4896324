"""Tuning a model: algorithms in the whole model, schedules kernel by kernel, then all together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic, perf_counter

from modelcc.driver import NOWHERE, ModelSource, compile_model, pipeline, target_of
from modelcc.ir.op import ModelError
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.schedule.listing import DIRECT, algorithm_lines
from modelcc.schedule.schedule import Schedule
from modelcc.schedule.text import print_schedule
from modelcc.schedule.wanted import ALGORITHM
from modelcc.schedule.workload import program_key
from modelcc.targets.base import Workplace
from modelcc.targets.native.target import NativeTarget
from modelcc.tune.database import Database
from modelcc.tune.measurement import Measurer, Worker
from modelcc.tune.search import Found, Search, Task
from modelcc.tune.turns import Run, in_turns

SHARE = 0.8
"""Of the budget until candidates are measured; the rest is for the model as a whole, which may take
longer."""

ALGORITHMS = 0.25
"""Of the budget until algorithms are tried."""

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
    """What was found: kernels by the time they take, the schedules that were taken, keys of
    contractions that are better computed directly, and seconds of a run of the model by default
    and with all that."""

    machine: str
    kernels: tuple[Found, ...]
    schedules: Mapping[str, Schedule]
    default: float
    tuned: float
    direct: frozenset[str] = frozenset()

    @property
    def gain(self) -> float:
        """How many times faster the model is."""
        return self.default / self.tuned

    @property
    def text(self) -> str:
        """The schedules as a file for ``--schedule``."""
        return listing_text(self.schedules, self.direct)


def listing_text(schedules: Mapping[str, Schedule], direct: Collection[str] = ()) -> str:
    """Schedules by the keys of their kernels, and contractions to compute directly, as a text."""
    lines = [f"kernel {key}: {print_schedule(one)}" for key, one in sorted(schedules.items())]
    return "".join(f"{line}\n" for line in (*algorithm_lines(direct), *lines))


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

    def after(share: float) -> Callable[[], bool]:
        return lambda: monotonic() - start > share * request.budget

    options = replace(request.options, schedule="", tuned=False)
    target = target_of(options)
    if not isinstance(target, NativeTarget):
        raise ModelError(f"kernels of target {target.name!r} cannot be measured here")
    with Database.open(request.database) as database, Worker() as worker:
        default = _session(request, options)
        groups = rewritten(request.model, options)

        def directly(direct: frozenset[str]) -> Run:
            return _session(request, replace(options, schedule=listing_text({}, direct)))

        direct = chosen_direct(groups, default, directly, _faster, after(ALGORITHMS))
        tasks = tasks_of(request.model, replace(options, schedule=listing_text({}, direct)))
        measurer = Measurer(target, request.workplace, worker)
        name = target.tuning_key
        search = Search(measurer, database, target.cpu, name, after(SHARE), request.report)
        found = search.run(tasks)
        tuning = _together(request, options, default, found, direct)
        left = {one.task.key: "" for one in found}
        left |= {f"{ALGORITHM}{key}": "" for group in groups for key in group}
        taken = {key: print_schedule(one) for key, one in tuning.schedules.items()}
        taken |= {f"{ALGORITHM}{key}": DIRECT for key in tuning.direct}
        database.choose(name, left | taken)
    return replace(tuning, machine=name)


def tasks_of(model: ModelSource, options: Options) -> list[Task]:
    """The distinct kernels of a model; the target must be a native one."""
    target = target_of(options)
    assert isinstance(target, NativeTarget)
    kernels = target.kernels(_before_scheduling(model, options))
    return [Task(one.kernel, one.schedule, one.calls, one.nodes) for one in kernels]


def rewritten(model: ModelSource, options: Options) -> tuple[tuple[str, ...], ...]:
    """Keys of contractions that are computed by algorithms of fewer multiplications, a group for
    each of these algorithms."""
    without = (replace(options, winograd=False), replace(options, strassen=False))
    others = [one for one in without if one != options]
    if not others:
        return ()
    kept = _contractions(model, options)
    groups = (_contractions(model, one) for one in others)
    found = (tuple(key for key in group if key not in kept) for group in groups)
    return tuple(group for group in found if group)


def _contractions(model: ModelSource, options: Options) -> tuple[str, ...]:
    """Keys of sums that read constants, in the order of the program."""
    program = _before_scheduling(model, options)
    kernels = [item for item in program.items if isinstance(item, Kernel)]
    sums = [one for one in kernels if any(stage.reduce for stage in one.stages)]
    weighted = [one for one in sums if not program.constants.keys().isdisjoint(one.inputs)]
    return tuple(dict.fromkeys(program_key(one, program) for one in weighted))


def _before_scheduling(model: ModelSource, options: Options) -> TensorProgram:
    stages = before_block(pipeline(target_of(options), options, NOWHERE), "schedule")
    return run_stages(stages, model)


def chosen_direct(
    groups: Sequence[tuple[str, ...]],
    default: Run,
    directly: Callable[[frozenset[str]], Run],
    faster: Callable[[Run, Run], bool],
    over: Callable[[], bool],
) -> frozenset[str]:
    """The contractions of ``groups`` without whose algorithms the model is faster, as far as that
    is known when it is ``over``.

    ``directly`` builds the model with some of them computed as they are; ``faster`` says whether
    the second of two runs is.  A group is tried as a whole, and
    where that is no gain by halves.
    """
    best, taken, waiting = default, frozenset[str](), list(groups)
    while waiting and not over():
        group = waiting.pop(0)
        run = directly(taken | set(group))
        if faster(best, run):
            best, taken = run, taken | set(group)
        elif len(group) > 1:
            half = len(group) // 2
            waiting += (group[:half], group[half:])
    return taken


def _together(
    request: Request,
    options: Options,
    default: Run,
    found: Sequence[Found],
    direct: frozenset[str],
) -> Tuning:
    """With the schedules and ``direct`` contractions with which the model is clearly faster than
    by ``default``.

    Where it is not with all schedules, half of them are left out, those that save least, and so on.
    """
    better = [one for one in found if one.best != one.task.default]
    ranked = sorted(better, key=lambda one: -one.saved)
    while ranked or direct:
        schedules = {one.task.key: one.best for one in ranked}
        tuned = _session(request, replace(options, schedule=listing_text(schedules, direct)))
        turns, faster = in_turns(default, tuned, _seconds)
        if faster:
            return Tuning("", tuple(found), schedules, turns.first, turns.second, direct)
        direct = direct if ranked else frozenset()
        ranked = ranked[: len(ranked) // 2]
    plain = in_turns(default, default, _seconds)[0].first
    return Tuning("", tuple(found), {}, plain, plain)


def _session(request: Request, options: Options) -> Run:
    compiled = compile_model(request.model, options, request.workplace)
    session = compiled.target.load(compiled.artifact, options.threads)
    return lambda: session.run(request.feeds)


def _faster(first: Run, second: Run) -> bool:
    return in_turns(first, second, _seconds)[1]


def _seconds(run: Run) -> float:
    start = perf_counter()
    run()
    return perf_counter() - start
