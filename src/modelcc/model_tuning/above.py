"""Choices above kernels, measured in the whole model: layouts, algorithms, fusion of
contractions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modelcc.driver import NOWHERE, ModelSource, pipeline, target_of
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.options import Options
from modelcc.pipeline import before_block, run_stages
from modelcc.schedule.listing import ALGORITHM, DIRECT, MODEL, above_lines
from modelcc.schedule.schedule import Schedule
from modelcc.schedule.text import print_schedule
from modelcc.schedule.workload import program_key
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.tune.search import Task
from modelcc.tune.turns import Run, Turns

WHOLE, DIRECTLY, OTHERWISE = 0.2, 0.3, 0.4
"""Fractions of the budget after which the following stop: model-wide choices, removal of
algorithms, and trials of others."""

Lines = tuple[tuple[str, str], ...]
"""Lines tried together: values of lines above kernels, by their prefixes."""

Attempt = Callable[[Run, Mapping[str, str], Lines], Run | None]
"""The model with all lines, of which the last ones are new, if it is faster than the previous
run."""


@dataclass(frozen=True)
class Trial:
    """Lines tried in the whole model: its runs without and with them, interleaved, and whether they
    were accepted."""

    lines: Lines
    turns: Turns
    taken: bool

    @property
    def text(self) -> str:
        """The lines, in one string."""
        return "; ".join(f"{name}: {value}" for name, value in self.lines)


def listing_text(schedules: Mapping[str, Schedule], above: Mapping[str, str] | None = None) -> str:
    """Schedules by kernel keys, and lines ``above`` kernels, as text."""
    lines = [f"kernel {key}: {print_schedule(one)}" for key, one in sorted(schedules.items())]
    return "".join(f"{line}\n" for line in (*above_lines(above or {}), *lines))


def with_lines(
    options: Options, above: Mapping[str, str], schedules: Mapping[str, Schedule] | None = None
) -> Options:
    """``options`` with lines ``above`` kernels and with schedules."""
    return replace(options, schedule=listing_text(schedules or {}, above))


def tasks_of(model: ModelSource, options: Options) -> list[Task]:
    """The distinct kernels of a model; the target must be a native one."""
    target = target_of(options)
    assert isinstance(target, CpuTarget)
    kernels = target.kernels(before_scheduling(model, options))
    return [Task(one.kernel, one.schedule, one.calls, one.nodes) for one in kernels]


def rewritten(model: ModelSource, options: Options) -> tuple[tuple[str, ...], ...]:
    """Keys of contractions computed by fast algorithms (fewer multiplications), grouped by
    algorithm."""
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
    program = before_scheduling(model, options)
    kernels = [item for item in program.items if isinstance(item, Kernel)]
    sums = [one for one in kernels if any(stage.reduce for stage in one.stages)]
    weighted = [one for one in sums if not program.constants.keys().isdisjoint(one.inputs)]
    return tuple(dict.fromkeys(program_key(one, program) for one in weighted))


def before_scheduling(model: ModelSource, options: Options) -> TensorProgram:
    """The program as it is before schedules are chosen."""
    stages = before_block(pipeline(target_of(options), options, NOWHERE), "schedule")
    return run_stages(stages, model)


@dataclass
class Choosing:
    """Search of choices above kernels.  ``built`` compiles the model, ``compare`` decides by
    interleaved runs whether the second is faster, ``after`` whether this fraction of the budget is
    spent; ``on_trial`` is called with each trial.

    ``tried`` are the prefixes of all lines considered.
    """

    model: ModelSource
    options: Options
    built: Callable[[Options], Run]
    compare: Callable[[Run, Run], tuple[Turns, bool]]
    after: Callable[[float], Callable[[], bool]]
    on_trial: Callable[[Trial], None]
    taken: dict[str, str] = field(default_factory=dict[str, str])
    tried: set[str] = field(default_factory=set[str])

    def choose(self, default: Run) -> None:
        """Tries each kind of choice on top of those already accepted, ``default`` being the model
        without any."""
        model, best = self.model, default
        for share, groups in (
            (WHOLE, lambda: whole_choices(model, self.options)),
            (DIRECTLY, lambda: direct_lines(model, with_lines(self.options, self.taken))),
            (OTHERWISE, lambda: other_lines(model, with_lines(self.options, self.taken))),
        ):
            found = groups()
            self.tried.update(name for group in found for name, _ in group)
            best, self.taken = chosen_lines(
                found, (best, self.taken), self._attempt, self.after(share)
            )

    def _attempt(self, best: Run, lines: Mapping[str, str], group: Lines) -> Run | None:
        run = self.built(with_lines(self.options, lines))
        turns, faster = self.compare(best, run)
        self.on_trial(Trial(group, turns, faster))
        return run if faster else None


def whole_choices(model: ModelSource, options: Options) -> list[Lines]:
    """Model-wide choices that give it other kernels than by default, or other schedules of
    these."""
    target, plain, found = target_of(options), _kernels(model, options), list[Lines]()
    assert isinstance(target, CpuTarget)
    for name, values in target.wanted.choices.items():
        lines = ((f"{MODEL}{name}", value) for value in values)
        found += ((o,) for o in lines if _kernels(model, with_lines(options, dict((o,)))) != plain)
    return found


def _kernels(model: ModelSource, options: Options) -> Counter[tuple[str, Schedule]]:
    return Counter({(one.key, one.default): one.calls for one in tasks_of(model, options)})


def direct_lines(model: ModelSource, options: Options) -> list[Lines]:
    """Contractions without their fast algorithms, by algorithm."""
    groups = rewritten(model, options)
    return [tuple((f"{ALGORITHM}{key}", DIRECT) for key in group) for group in groups]


def other_lines(model: ModelSource, options: Options) -> list[Lines]:
    """Contractions with applicable algorithms that they do not use, by algorithm."""
    target = target_of(options)
    assert isinstance(target, CpuTarget)
    known = target.wanted.given.algorithms
    found = target.alternatives(before_scheduling(model, options))
    groups = (
        tuple((f"{ALGORITHM}{key}", word) for key in keys if key not in known)
        for word, keys in found.items()
    )
    return [group for group in groups if group]


def chosen_lines(
    groups: Sequence[Lines],
    before: tuple[Run, Mapping[str, str]],
    attempt: Attempt,
    over: Callable[[], bool],
) -> tuple[Run, dict[str, str]]:
    """The model with those lines of ``groups`` by which it is faster than ``before``, as far as
    known when it is ``over``, and all its lines.

    A group is tried as a whole, and if that is no gain by halves.
    """
    (best, lines), waiting = before, list(groups)
    taken = dict(lines)
    while waiting and not over():
        group = waiting.pop(0)
        run = attempt(best, taken | dict(group), group)
        if run is not None:
            best, taken = run, taken | dict(group)
        elif len(group) > 1:
            half = len(group) // 2
            waiting += (group[:half], group[half:])
    return best, taken
