"""Invalid operands, in modelcc and in onnxruntime.

    python -m fuzz.operands [--cpu x86-64-v2]

Every operator of :mod:`fuzz.operand_cases` is compiled once, with all operands given at run time.
Then each element that determines accesses is set to an extreme number, alone and with all others,
and each named extent to 0 and 1.  modelcc and onnxruntime run every input in separate processes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import click
import numpy as np

import modelcc
from fuzz.attempt import Limits, Outcome, last_lines, limited
from fuzz.operand_cases import CASES, Case
from fuzz.opinions import evaluated, flat, onnxruntime_runner
from modelcc.driver import compile_model
from modelcc.options import Options
from modelcc.runtime.errors import InputError, OutOfMemoryError, RunError
from modelcc.verification.comparison import compare

WHOLE = (0, 1, -1, -3, 100, -100, 2**31, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63))
REAL = (0.0, 1.0, -1.0, 0.3, 1e6, 1e-30, 1e30, 3e38, -1e30, np.inf, -np.inf, np.nan)
RIGHT = ("alike", "explained", "both-refuse", "peer-refused", "peer-died", "too-large")
Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """One input of one operator, its mutation, and its outcome.

    Outcomes are ``alike``, ``explained`` (onnx's evaluator agrees with modelcc), ``both-refuse``,
    ``refused`` (by modelcc alone), ``peer-refused``, ``peer-died``, ``too-large`` (for memory), or
    a finding: ``differs`` and those of :class:`~fuzz.attempt.Outcome`.
    """

    case: Case
    change: str
    outcome: Outcome

    @property
    def is_finding(self) -> bool:
        """Whether it should be examined."""
        return self.outcome.kind not in RIGHT


@dataclass(frozen=True)
class Engines:
    """One operator in both engines."""

    case: Case
    options: Options

    @cached_property
    def ours(self) -> Callable[[Feeds], Feeds]:
        """A runner of modelcc."""
        compiled = compile_model(self.case.model, self.options)
        session = compiled.target.load(compiled.artifact, 1)
        return lambda feeds: flat(session.run(dict(feeds)))

    def peer(self, feeds: Feeds) -> Feeds:
        """Results of onnxruntime, whose sessions do not survive a fork."""
        return onnxruntime_runner(self.case.model)(feeds)


def variants(case: Case) -> Iterator[tuple[str, Feeds]]:
    """Mutations of the inputs of ``case``, and the mutated inputs."""
    for name in case.deciders:
        array = np.asarray(case.feeds[name])
        for value in WHOLE if array.dtype.kind in "iub" else REAL:
            with np.errstate(all="ignore"):
                extreme = np.asarray(value).astype(array.dtype)
            yield f"{name} = {value}", {**case.feeds, name: np.full_like(array, extreme)}
            for place in dict.fromkeys((0, array.size - 1)) if array.size > 1 else ():
                changed = array.copy()
                changed.flat[place] = extreme
                yield f"{name}[{place}] = {value}", {**case.feeds, name: changed}
    yield from _other_extents(case)


def _other_extents(case: Case) -> Iterator[tuple[str, Feeds]]:
    axes: dict[str, list[tuple[str, int]]] = {}
    for value in case.model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param:
                axes.setdefault(dim.dim_param, []).append((value.name, axis))
    for dim, places in axes.items():
        for extent in (0, 1):
            feeds = dict(case.feeds)
            for name, axis in places:
                feeds[name] = np.ascontiguousarray(np.take(feeds[name], range(extent), axis))
            yield f"{dim} is {extent}", feeds


def tried(engines: Engines, feeds: Feeds, limits: Limits) -> Outcome:
    """The outcome for these inputs, isolated from crashes."""
    alone = limited(partial(_ours, engines.ours, feeds), limits)
    if alone.kind not in ("ran", "refused"):
        return alone
    more = replace(limits, memory=8 * limits.memory)  # for both results, and their comparison
    both = limited(partial(_both, engines, feeds, alone), more)
    return replace(alone, kind="peer-died") if both.kind in ("crash", "hang") else both


def _ours(ours: Callable[[Feeds], Feeds], feeds: Feeds) -> Outcome:
    try:
        ours(feeds)
        return Outcome("ran")
    except OutOfMemoryError as error:
        return Outcome("too-large", "run", str(error)[:500])
    except (InputError, RunError) as error:
        return Outcome("refused", "run", str(error)[:500])
    except BaseException as error:
        return Outcome("fault", "run", last_lines(error))


def _both(engines: Engines, feeds: Feeds, alone: Outcome) -> Outcome:
    try:
        wanted = engines.peer(feeds)
    except Exception as error:
        kind = "both-refuse" if alone.kind == "refused" else "peer-refused"
        return Outcome(kind, "run", alone.message or str(error)[:500])
    if alone.kind == "refused":
        return alone
    try:
        return _judged(engines.case, feeds, engines.ours(feeds), wanted)
    except BaseException as error:
        return Outcome("fault", "compare", last_lines(error))


def _judged(case: Case, feeds: Feeds, got: Feeds, wanted: Feeds) -> Outcome:
    wrong = _differences(got, wanted)
    if not wrong:
        return Outcome("alike")
    agrees = _evaluator_agrees(case, feeds, got)
    return Outcome("explained" if agrees else "differs", "compare", "; ".join(wrong))


def _differences(got: Feeds, wanted: Feeds) -> list[str]:
    found = [compare(name, got[name], value) for name, value in wanted.items()]
    return [str(difference) for difference in found if not difference.agrees]


def _evaluator_agrees(case: Case, feeds: Feeds, got: Feeds) -> bool:
    try:
        return not _differences(got, evaluated(case.model, feeds))
    except Exception:
        return False  # no opinion


def campaign(cases: Sequence[Case], options: Options, limits: Limits) -> Iterator[Trial]:
    """All variants of all cases."""
    for case in cases:
        engines = Engines(case, options)
        try:
            engines.ours(case.feeds)
        except modelcc.ModelError as error:
            yield Trial(case, "as it is", Outcome("refused", "compile", str(error)))
            continue
        yield Trial(case, "as it is", tried(engines, case.feeds, limits))
        for change, feeds in variants(case):
            yield Trial(case, change, tried(engines, feeds, limits))


@click.command()
@click.option("--cpu", default="", help="Processor to compile for; this one if not given.")
@click.option("--only", default="", help="Operators whose name contains this.")
@click.option("--seconds", default=20, show_default=True, help="Processor time of an input.")
@click.option("--memory", default=256, show_default=True, help="MiB of an input.")
@click.option("--verbose", is_flag=True, help="Also show what onnxruntime alone refuses.")
def main(cpu: str, only: str, seconds: int, memory: int, verbose: bool) -> None:
    """Compare both engines on operands that are made to break them.

    Exit code 1 if modelcc crashes, hangs, or ends in an exception that is none of the user's;
    results that differ, and what it alone refuses, are shown to be looked at.
    """
    cases = [case for case in CASES if only in case.name]
    counts: Counter[str] = Counter()
    for trial in campaign(cases, Options(cpu=cpu, threads=1), Limits(seconds, memory << 20)):
        counts[trial.outcome.kind] += 1
        if trial.is_finding or (verbose and trial.outcome.kind != "alike"):
            said = trial.outcome.message.split("\n")[0][:200]
            click.echo(f"{trial.case.name}: {trial.change}: {trial.outcome.kind}: {said}")
    click.echo("\n".join(f"{kind:13}{count:6}" for kind, count in counts.most_common()))
    sys.exit(1 if counts.keys() & {"fault", "crash", "hang", "memory"} else 0)


if __name__ == "__main__":
    main()
