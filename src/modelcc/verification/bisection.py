"""Bisection of miscompilations: the pass, and the rewrite in it, that changed a program's results.

Programs of all stages are kept and interpreted in a binary search, and the compiled one is run:
once the result is wrong, it stays wrong.  Rewriting passes can stop after N rewrites, so the search
continues inside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from modelcc.artifact.file import Artifact
from modelcc.ir.types import Array
from modelcc.levels.interpretation import INTERPRETED, interpret_level
from modelcc.pipeline import PipelineStage, StageRun
from modelcc.runtime.session import Session
from modelcc.verification.comparison import Difference, compare

RUN = (*INTERPRETED, Artifact)
"""Kinds of programs that can be executed."""

Differences = Callable[[object], "tuple[Difference, ...]"]
"""Outputs of a program, at any level, compared with expected ones."""


@dataclass(frozen=True)
class Culprit:
    """The first stage after which a result is wrong.

    ``rewrite`` is the number of the first rewrite in it (from 1) that causes that, None if the
    stage does not count rewrites.
    """

    stage: str
    rewrite: int | None
    differences: tuple[Difference, ...]


def differences_by_interpreter(
    feeds: Mapping[str, Array],
    sizes: Mapping[str, int],
    expected: Mapping[str, Array],
    load: Callable[[Artifact], Session],
    tolerance: float | None = None,
) -> Differences:
    """Compares results of a program for ``feeds`` with ``expected``: by interpretation, or by
    running a compiled one."""

    def results_of(program: object) -> tuple[Array, ...]:
        if not isinstance(program, Artifact):
            return interpret_level(program, feeds, sizes)
        found = load(program).run(feeds)
        return tuple(found[name] for name in expected)

    def differences(program: object) -> tuple[Difference, ...]:
        try:
            results = results_of(program)
        except Exception as error:  # a broken program may fail in any way: that is a finding
            problem = f"the run stops: {type(error).__name__}: {error}"
            return (Difference("program", 0.0, 0.0, 0.0, problem=problem),)
        named = zip(expected.items(), results, strict=True)
        return tuple(compare(name, got, want, tolerance) for (name, want), got in named)

    return differences


def find_culprit(runs: Sequence[StageRun], differences: Differences) -> Culprit | None:
    """The stage of ``runs`` that broke the program; None if it is right after all of them."""
    states = [run for run in runs if isinstance(run.after, RUN)]
    if not states or not _wrong(differences(states[-1].after)):
        return None
    low, high = 0, len(states) - 1
    while low < high:
        middle = (low + high) // 2
        if _wrong(differences(states[middle].after)):
            high = middle
        else:
            low = middle + 1
    run = states[high]
    rewrite = _first_bad_rewrite(run, differences) if run.stage.counts_rewrites else None
    return Culprit(_span(runs, states, high), rewrite, differences(run.after))


def _span(runs: Sequence[StageRun], states: Sequence[StageRun], bad: int) -> str:
    """Stages since the last correct program, as some produce nothing that can be executed."""
    first = runs.index(states[bad - 1]) + 1 if bad else 0
    last = runs.index(states[bad])
    return ", ".join(run.stage.label for run in runs[first : last + 1])


def _first_bad_rewrite(run: StageRun, differences: Differences) -> int:
    def wrong(rewrites: int) -> bool:
        return _wrong(differences(_after(run.stage, run.before, rewrites)))

    high = 1
    while not wrong(high):
        if _after(run.stage, run.before, high) == _after(run.stage, run.before, 2 * high):
            return high  # no rewrites are left: the pass itself breaks the program afterwards
        high *= 2
    low = high // 2 + 1
    while low < high:
        middle = (low + high) // 2
        if wrong(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _after(stage: PipelineStage, before: object, rewrites: int) -> object:
    return stage.limited(rewrites).run(before)


def _wrong(differences: Sequence[Difference]) -> bool:
    return any(not difference.agrees for difference in differences)
