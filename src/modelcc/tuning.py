"""Tuning a model: layouts and algorithms in the whole model, schedules kernel by kernel, then all
together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from modelcc.driver import NOWHERE, ModelSource, compile_model, pipeline, target_of
from modelcc.ir.op import ModelError
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.schedule.listing import ALGORITHM, DIRECT, MODEL, above_lines
from modelcc.schedule.schedule import Schedule
from modelcc.schedule.text import print_schedule
from modelcc.schedule.workload import program_key
from modelcc.targets.base import Workplace
from modelcc.targets.native.target import NativeTarget
from modelcc.tune.database import Database
from modelcc.tune.measurement import Measurer, Worker
from modelcc.tune.model_rows import model_key, rows_of
from modelcc.tune.search import Found, Search, Task
from modelcc.tune.turns import Run, clock_for, in_turns

SHARE = 0.8
"""Of the budget until candidates are measured; the rest is for the model as a whole, which may take
longer."""

WHOLE, DIRECTLY, OTHERWISE = 0.2, 0.3, 0.4
"""Of the budget until choices for the model as a whole are tried, until algorithms are left out,
and until others are taken."""

Lines = tuple[tuple[str, str], ...]
"""What is tried together: values of lines above kernels, by what these begin with."""

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
    """What was found: kernels by the time they take, the schedules that were taken, lines ``above``
    kernels by what they begin with, and seconds of a run of the model by default and with all
    that."""

    machine: str
    kernels: tuple[Found, ...]
    schedules: Mapping[str, Schedule]
    default: float
    tuned: float
    above: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def gain(self) -> float:
        """How many times faster the model is."""
        return self.default / self.tuned

    @property
    def text(self) -> str:
        """The schedules as a file for ``--schedule``."""
        return listing_text(self.schedules, self.above)


def listing_text(schedules: Mapping[str, Schedule], above: Mapping[str, str] | None = None) -> str:
    """Schedules by the keys of their kernels, and lines ``above`` kernels, as a text."""
    lines = [f"kernel {key}: {print_schedule(one)}" for key, one in sorted(schedules.items())]
    return "".join(f"{line}\n" for line in (*above_lines(above or {}), *lines))


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
        choosing = _Choosing(request, options, after)
        choosing.choose(default)
        above = choosing.taken
        tasks = tasks_of(request.model, _with(options, above))
        measurer = Measurer(target, request.workplace, worker)
        name = target.tuning_key
        search = Search(measurer, database, target.cpu, name, after(SHARE), request.report)
        found = search.run(tasks)
        tuning = _together(request, options, default, found, above)
        key = model_key(request.model, options.dims)
        left = {one.task.key: "" for one in found}
        left |= rows_of(dict.fromkeys(choosing.tried, ""), key)
        taken = {key: print_schedule(one) for key, one in tuning.schedules.items()}
        database.choose(name, left | taken | rows_of(tuning.above, key))
    return replace(tuning, machine=name)


def _with(
    options: Options, above: Mapping[str, str], schedules: Mapping[str, Schedule] | None = None
) -> Options:
    return replace(options, schedule=listing_text(schedules or {}, above))


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


@dataclass
class _Choosing:
    """What is chosen above kernels, in the whole model; ``tried`` are the beginnings of all lines
    that were thought of."""

    request: Request
    options: Options
    after: Callable[[float], Callable[[], bool]]
    taken: dict[str, str] = field(default_factory=dict[str, str])
    tried: set[str] = field(default_factory=set[str])

    def choose(self, default: Run) -> None:
        """Each kind of choice under those that were made before, ``default`` being the model
        without any."""
        model, best = self.request.model, default
        for share, groups in (
            (WHOLE, lambda: whole_choices(model, self.options)),
            (DIRECTLY, lambda: direct_lines(model, _with(self.options, self.taken))),
            (OTHERWISE, lambda: other_lines(model, _with(self.options, self.taken))),
        ):
            found = groups()
            self.tried.update(name for group in found for name, _ in group)
            best, self.taken = chosen_lines(
                found, (best, self.taken), self._built, self._faster, self.after(share)
            )

    def _built(self, lines: Mapping[str, str]) -> Run:
        return _session(self.request, _with(self.options, lines))

    def _faster(self, first: Run, second: Run) -> bool:
        return in_turns(first, second, clock_for(self.options.threads))[1]


def whole_choices(model: ModelSource, options: Options) -> list[Lines]:
    """Choices for the model as a whole that make other kernels of it than the default."""
    target, plain, found = target_of(options), _kernels(model, options), list[Lines]()
    assert isinstance(target, NativeTarget)
    for name, values in target.wanted.choices.items():
        lines = ((f"{MODEL}{name}", value) for value in values)
        found += ((o,) for o in lines if _kernels(model, _with(options, dict((o,)))) != plain)
    return found


def _kernels(model: ModelSource, options: Options) -> Counter[str]:
    return Counter({one.key: one.calls for one in tasks_of(model, options)})


def direct_lines(model: ModelSource, options: Options) -> list[Lines]:
    """Contractions without the algorithms that they have, by algorithm."""
    groups = rewritten(model, options)
    return [tuple((f"{ALGORITHM}{key}", DIRECT) for key in group) for group in groups]


def other_lines(model: ModelSource, options: Options) -> list[Lines]:
    """Contractions by algorithms that they could have and do not, by algorithm."""
    target = target_of(options)
    assert isinstance(target, NativeTarget)
    known = target.wanted.given.algorithms
    found = target.alternatives(_before_scheduling(model, options))
    groups = (
        tuple((f"{ALGORITHM}{key}", word) for key in keys if key not in known)
        for word, keys in found.items()
    )
    return [group for group in groups if group]


def chosen_lines(
    groups: Sequence[Lines],
    before: tuple[Run, Mapping[str, str]],
    built: Callable[[Mapping[str, str]], Run],
    faster: Callable[[Run, Run], bool],
    over: Callable[[], bool],
) -> tuple[Run, dict[str, str]]:
    """The model with those lines of ``groups`` by which it is faster than ``before``, as far as
    that is known when it is ``over``, and all its lines.

    ``built`` makes the model with some lines; ``faster`` says whether the second of two runs is.
    A group is tried as a whole, and where that is no gain by halves.
    """
    (best, lines), waiting = before, list(groups)
    taken = dict(lines)
    while waiting and not over():
        group = waiting.pop(0)
        run = built(taken | dict(group))
        if faster(best, run):
            best, taken = run, taken | dict(group)
        elif len(group) > 1:
            half = len(group) // 2
            waiting += (group[:half], group[half:])
    return best, taken


def _together(
    request: Request,
    options: Options,
    default: Run,
    found: Sequence[Found],
    above: Mapping[str, str],
) -> Tuning:
    """With the schedules and lines ``above`` with which the model is clearly faster than by
    ``default``.

    Where it is not with all schedules, half of them are left out, those that save least, and so on.
    """
    better = [one for one in found if one.best != one.task.default]
    ranked = sorted(better, key=lambda one: -one.saved)
    while ranked or above:
        schedules = {one.task.key: one.best for one in ranked}
        tuned = _session(request, _with(options, above, schedules))
        turns, faster = in_turns(default, tuned, clock_for(options.threads))
        if faster:
            return Tuning("", tuple(found), schedules, turns.first, turns.second, above)
        above = above if ranked else {}
        ranked = ranked[: len(ranked) // 2]
    plain = in_turns(default, default, clock_for(options.threads))[0].first
    return Tuning("", tuple(found), {}, plain, plain)


def _session(request: Request, options: Options) -> Run:
    compiled = compile_model(request.model, options, request.workplace)
    session = compiled.target.load(compiled.artifact, options.threads)
    return lambda: session.run(request.feeds)
