"""Tuning of a model: layouts and algorithms in the whole model, schedules kernel by kernel, then
all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic

from modelcc.driver import NOWHERE, ModelSource, compile_model, target_of
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.model_tuning.above import Choosing, Trial, listing_text, tasks_of, with_lines
from modelcc.options import Options
from modelcc.schedule.listing import MODEL
from modelcc.schedule.schedule import Schedule
from modelcc.schedule.text import print_schedule
from modelcc.targets.base import BuildConfig
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.tune.database import Database, Measurement, State
from modelcc.tune.measurement import Worker, WorkerMeasurer
from modelcc.tune.model_rows import model_key, rows_of
from modelcc.tune.search import Search, SearchResult, over_default
from modelcc.tune.turns import Run, Turns, clock_for, in_turns

SHARE = 0.8
"""Fraction of the budget for measuring candidates; the rest is for the whole model, which may take
longer."""

LEAST_BUDGET = 5.0
"""Minimum seconds in which anything can be measured."""


@dataclass(frozen=True)
class Standing:
    """Progress of tuning: ``kernels`` measured; seconds of a run by ``default`` (0: unknown yet),
    and with the ``best`` so far, assuming that gains of kernels add up."""

    default: float
    best: float
    kernels: int = 0


@dataclass(frozen=True)
class TuningRequest:
    """What to tune, on which inputs, with a budget in seconds; ``database`` is the file to store
    measurements in."""

    model: ModelSource
    options: Options
    feeds: Mapping[str, Array]
    database: Path
    budget: float
    config: BuildConfig = NOWHERE
    report: Callable[[Standing], None] = field(default=lambda standing: None)


@dataclass(frozen=True)
class Together:
    """The default model and that with this number of ``schedules`` and lines ``above`` kernels,
    interleaved, and whether the latter was faster."""

    schedules: int
    above: int
    turns: Turns
    faster: bool


@dataclass(frozen=True)
class Tuning:
    """Results: kernels by the time they take, the accepted schedules, lines ``above`` kernels by
    prefix, and seconds of a run of the model by default and with all of these.

    ``trials`` are of choices above kernels, ``attempts`` of all together, the last one accepted.
    ``known`` are measurements in the database of the kernels and, as ``model``, of such choices,
    from this run or earlier ones.  ``spent`` are seconds of tuning.
    """

    machine: str
    kernels: tuple[SearchResult, ...]
    schedules: Mapping[str, Schedule]
    default: float
    tuned: float
    above: Mapping[str, str] = field(default_factory=dict[str, str])
    trials: tuple[Trial, ...] = ()
    attempts: tuple[Together, ...] = ()
    known: Mapping[str, Mapping[str, Measurement]] = field(
        default_factory=dict[str, Mapping[str, Measurement]]
    )
    distinct: int = 0
    spent: float = 0.0

    @property
    def gain(self) -> float:
        """Speedup of the model."""
        return self.default / self.tuned

    @property
    def text(self) -> str:
        """The schedules as a file for ``--schedule``."""
        return listing_text(self.schedules, self.above)


def tune_model(request: TuningRequest) -> Tuning:
    """Searches schedules for the kernels of a model, accepts those with which it ran faster than by
    default, in interleaved runs, and stores them in the database.

    They replace earlier choices for these kernels, possibly from tuning other models.
    It may be interrupted at any moment and resumes there.  :class:`ModelError` if the target
    has no kernels to measure, the budget is too small, or schedules are given.
    """
    if request.budget < LEAST_BUDGET:
        least = f"at least {LEAST_BUDGET:.0f} s"
        raise ModelError(f"a budget of {request.budget:g} s is too small", (), f"give {least}")
    if request.options.schedule or request.options.tuned:
        hint = "leave --schedule and --tuned out"
        raise ModelError("tuning starts from the schedules that a model has by default", (), hint)
    start = monotonic()

    def after(share: float) -> Callable[[], bool]:
        return lambda: monotonic() - start > share * request.budget

    options = request.options
    target = target_of(options)
    if not isinstance(target, CpuTarget):
        hint = "those of native and c are; other targets have the schedules that they estimate"
        raise ModelError(f"kernels of target {target.name!r} are not measured", (), hint)
    name, key = target.tuning_key, model_key(request.model, options.dims)
    with Database.open(request.database) as database, Worker() as worker:
        default = _session(request, options)
        recorder = _Recorder(request, database, name, key, clock_for(options.threads)(default))
        choosing = _choosing(request, options, after, recorder.trial)
        choosing.choose(default)
        above = choosing.taken
        tasks = tasks_of(request.model, with_lines(options, above))
        measurer = WorkerMeasurer(target, request.config, worker)
        search = Search(measurer, database, target.cpu, name, after(SHARE), recorder.found)
        found = search.run(tasks)
        tuning = _together(request, options, default, found, above)
        left = {one.task.key: "" for one in found}
        left |= rows_of(dict.fromkeys(choosing.tried, ""), key)
        taken = {key: print_schedule(one) for key, one in tuning.schedules.items()}
        database.choose(name, left | taken | rows_of(tuning.above, key))
        known = _known(database, name, found, key)
    spent, trials = monotonic() - start, tuple(recorder.trials)
    more = {"machine": name, "trials": trials, "known": known}
    return replace(tuning, **more, distinct=len(tasks), spent=spent)


def _choosing(
    request: TuningRequest,
    options: Options,
    after: Callable[[float], Callable[[], bool]],
    on_trial: Callable[[Trial], None],
) -> Choosing:
    def compare(first: Run, second: Run) -> tuple[Turns, bool]:
        return in_turns(first, second, clock_for(options.threads))

    built = partial(_session, request)
    return Choosing(request.model, options, built, compare, after, on_trial)


def _known(
    database: Database, machine: str, found: Sequence[SearchResult], key: str
) -> dict[str, Mapping[str, Measurement]]:
    """Measurements of kernels, by their keys, and of the model as a whole."""
    own = {
        one.task.key: over_default(database.measurements(machine, one.task.key), one.task.default)
        for one in found
    }
    return {**own, "model": database.measurements(machine, MODEL + key)}


@dataclass
class _Recorder:
    """Records trials and kernels, and reports progress to the request; ``seconds`` are of a run by
    default."""

    request: TuningRequest
    database: Database
    machine: str
    key: str
    seconds: float
    trials: list[Trial] = field(default_factory=list[Trial])
    saved: dict[str, float] = field(default_factory=dict[str, float])

    def trial(self, trial: Trial) -> None:
        """The first trial of some lines is stored in the database, as the model's."""
        self.trials.append(trial)
        if self.key:
            default, ratio = trial.turns.first, trial.turns.ratio
            seconds = (State.measured, default / ratio, default)
            own = Measurement(MODEL + self.key, trial.text, *seconds)
            self.database.record(self.machine, [own])
        self._tell()

    def found(self, found: SearchResult) -> None:
        self.saved[found.task.key] = found.saved
        self._tell()

    def _tell(self) -> None:
        best = self.seconds
        for trial in self.trials:
            best /= trial.turns.ratio if trial.taken else 1
        saved = sum(self.saved.values())
        standing = Standing(self.seconds, max(best - saved, 0.0), len(self.saved))
        self.request.report(standing)


def _together(
    request: TuningRequest,
    options: Options,
    default: Run,
    found: Sequence[SearchResult],
    above: Mapping[str, str],
) -> Tuning:
    """With the schedules and lines ``above`` with which the model is clearly faster than by
    ``default``.

    If it is not with all schedules, the half that saves least is dropped, and so on.
    """
    clock = clock_for(options.threads)
    better = [one for one in found if one.best != one.task.default]
    ranked = sorted(better, key=lambda one: -one.saved)
    attempts: list[Together] = []
    while ranked or above:
        schedules = {one.task.key: one.best for one in ranked}
        tuned = _session(request, with_lines(options, above, schedules))
        turns, faster = in_turns(default, tuned, clock)
        attempts.append(Together(len(ranked), len(above), turns, faster))
        if faster:
            times = turns.first, turns.second
            return Tuning("", tuple(found), schedules, *times, above, (), tuple(attempts))
        above = above if ranked else {}
        ranked = ranked[: len(ranked) // 2]
    plain = in_turns(default, default, clock)[0].first
    return Tuning("", tuple(found), {}, plain, plain, {}, (), tuple(attempts))


def _session(request: TuningRequest, options: Options) -> Run:
    compiled = compile_model(request.model, options, request.config)
    session = compiled.target.load(compiled.artifact, options.threads)
    return lambda: session.run(request.feeds)
