"""Running a list of named stages, with one hook for every step.

Dumping, timing, verifying and bisecting are observers; stages are independent of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from time import perf_counter
from typing import Any, cast

from modelcc.ir.errors import Error

Transform = Callable[[Any], Any]
"""A pass or lowering: takes a program, and returns it changed or one level lower."""


@dataclass(frozen=True)
class PipelineStage:
    """One step of a pipeline.  ``block`` groups neighbours (``graph``, ``tensor`` …)."""

    block: str
    name: str
    run: Transform

    @property
    def label(self) -> str:
        """Block and name, as in dumps and timing tables."""
        return f"{self.block}/{self.name}"

    @property
    def counts_rewrites(self) -> bool:
        """Whether the stage can stop after a number of rewrites: a ``limit`` that may be None."""
        known = fields(self.run) if is_dataclass(self.run) else ()
        return any(f.name == "limit" and f.default is None for f in known)

    def limited(self, rewrites: int) -> PipelineStage:
        """The stage limited to ``rewrites`` rewrites; needs :attr:`counts_rewrites`."""
        limited: Transform = replace(self.run, limit=rewrites)  # type: ignore[type-var]
        return replace(self, run=limited)


@dataclass(frozen=True)
class StageRun:
    """The argument of an observer after a stage has run."""

    stage: PipelineStage
    before: Any
    after: Any
    seconds: float


Observer = Callable[[StageRun], None]


class StageError(Error, RuntimeError):
    """Raised if a stage produces an invalid program: a bug of modelcc."""


def block(name: str, *steps: Transform | tuple[str, Transform]) -> tuple[PipelineStage, ...]:
    """Stages of one block.  Passes are named after their class or function, unless a name is
    given."""
    return tuple(PipelineStage(name, *_named(step)) for step in steps)


def _named(step: Transform | tuple[str, Transform]) -> tuple[str, Transform]:
    if isinstance(step, tuple):
        return cast("tuple[str, Transform]", step)
    return getattr(step, "__name__", type(step).__name__), step


def numbered(stages: Iterable[PipelineStage]) -> tuple[PipelineStage, ...]:
    """The stages with distinct names: the second ``Cse`` becomes ``Cse#2``."""
    seen: Counter[str] = Counter()
    result: list[PipelineStage] = []
    for stage in stages:
        seen[stage.name] += 1
        count = seen[stage.name]
        result.append(replace(stage, name=f"{stage.name}#{count}") if count > 1 else stage)
    return tuple(result)


def run_stages(
    stages: Sequence[PipelineStage],
    program: Any,
    observer: Observer | None = None,
    begin: Callable[[PipelineStage], None] | None = None,
) -> Any:
    """The program after all stages; ``begin`` is called before each and ``observer`` after it."""
    for stage in stages:
        if begin is not None:
            begin(stage)
        start = perf_counter()
        after = stage.run(program)
        seconds = perf_counter() - start
        if observer is not None:
            observer(StageRun(stage, program, after, seconds))
        program = after
    return program


def before_block(stages: Sequence[PipelineStage], name: str) -> tuple[PipelineStage, ...]:
    """The stages that come before block ``name``."""
    names = [stage.block for stage in stages]
    return tuple(stages[: names.index(name)])


def from_block(stages: Sequence[PipelineStage], name: str) -> tuple[PipelineStage, ...]:
    """Block ``name`` and the stages after it."""
    names = [stage.block for stage in stages]
    return tuple(stages[names.index(name) :])


def all_of(*observers: Observer | None) -> Observer:
    """One observer that calls all of ``observers``, in order; None is skipped."""

    def tell(run: StageRun) -> None:
        for observer in observers:
            if observer is not None:
                observer(run)

    return tell
