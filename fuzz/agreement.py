"""Comparison of modelcc and onnxruntime on unmodified models.

    python -m fuzz.agreement FOLDER
    python -m fuzz.agreement FOLDER --target opencl --precision f16 --size 1

Every model in FOLDER, recursively, gets a resource-limited process.  onnxruntime runs it without
and with its optimisations.  A differing result is explained if onnxruntime's own results vary about
as much, or if another reference agrees with modelcc (:mod:`fuzz.opinions`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import click

import modelcc
from fuzz.attempt import Limits, Outcome, last_lines, limited
from fuzz.opinions import Arrays, flat, onnxruntime_runner, opinions
from modelcc.driver import compile_model, import_model
from modelcc.feeds.random import index_limits, nominal_sizes, random_feeds, size_constraints
from modelcc.ir.index import Range
from modelcc.options import PRECISIONS, Options
from modelcc.runtime.errors import InputError
from modelcc.verification.comparison import compare

TOLERANCES = {"f64": 1e-6, "f32": 1e-3, "tf32x3": 1e-3, "f16": 5e-2, "tf32": 1e-2, "bf16": 1e-1}
"""Relative to the largest value: random models amplify rounding errors."""

PLAIN = Options(threads=1)


@dataclass(frozen=True)
class Trial:
    """How models are compiled and fed: ``size`` is that of every named dimension, within its bounds
    (None: moderate ones of several sizes)."""

    options: Options = PLAIN
    size: int | None = None


@dataclass(frozen=True)
class Compared:
    """A model and its outcome: ``agreed``, ``explained`` (how, in the message), ``refused`` (by
    modelcc alone), ``peer-refused`` (by onnxruntime), or a finding: ``wrong`` and those of
    :class:`~fuzz.attempt.Outcome`."""

    path: Path
    outcome: Outcome

    @property
    def is_finding(self) -> bool:
        """Whether it is a defect."""
        return self.outcome.kind not in ("agreed", "explained", "refused", "peer-refused")


def compared(path: Path, limits: Limits, trial: Trial = Trial()) -> Compared:
    """The model at ``path`` in both engines."""
    return Compared(path, limited(lambda: _outcome(path, trial), limits))


def _outcome(path: Path, trial: Trial) -> Outcome:
    stage = "import"
    try:
        plain = onnxruntime_runner(path)
        feeds = _feeds(path, trial.size)
        wanted = plain(feeds)
    except modelcc.ModelError as error:
        return Outcome("refused", stage, str(error)[:2000], bool(error.where))
    except Exception as error:
        return _alone(path, trial.options, f"{type(error).__name__}: {error}")
    try:
        stage = "compile"
        compiled = compile_model(path, trial.options)
        stage = "run"
        got = flat(compiled.target.load(compiled.artifact, 1).run(feeds))
        stage = "compare"
        return judged(path, feeds, got, wanted, trial.options.precision)
    except modelcc.ModelError as error:
        return Outcome("refused", stage, str(error)[:2000], bool(error.where))
    except InputError as error:
        return Outcome("refused", stage, str(error)[:2000])
    except Exception as error:
        return Outcome("fault", stage, last_lines(error))


def _alone(path: Path, options: Options, reason: str) -> Outcome:
    """A model that onnxruntime rejects may be rejected or run, but not end in a fault."""
    try:
        compile_model(path, options)
    except modelcc.ModelError:
        pass
    except Exception as error:
        return Outcome("fault", "compile", last_lines(error))
    return Outcome("peer-refused", message=reason[:300])


def _feeds(path: Path, size: int | None) -> dict[str, Any]:
    graph = import_model(path, Options())
    types = {name: graph.types[name] for name in graph.inputs}
    dims, constraints = size_constraints(graph)
    given = {} if size is None else {name: _bounded(dims[name], size) for name in dims}
    sizes = nominal_sizes(dims, given, [type.shape for type in types.values()], constraints)
    return random_feeds(types, sizes, 0, index_limits(graph))


def _bounded(bounds: Range, size: int) -> int:
    least = bounds.lo if isinstance(bounds.lo, int) else size
    most = bounds.hi if isinstance(bounds.hi, int) else size
    return min(max(size, least), most)


def judged(
    path: Path, feeds: Arrays, got: Arrays, wanted: Arrays, precision: str = "f32"
) -> Outcome:
    """``got`` of modelcc, whose products are of ``precision``, against ``wanted``."""
    wrong = _differences(got, wanted, precision)
    if not wrong:
        return Outcome("agreed")
    reasons: dict[str, str] = {}
    for who, others in opinions(path, feeds, got):
        same = _differences(got, {name: others[name] for name in wrong}, precision)
        apart = _differences(others, {name: wanted[name] for name in wrong}, precision)
        for name in wrong.keys() - reasons.keys():
            if name not in same:
                reasons[name] = f"{who} gives what modelcc gives"
            elif apart.get(name, 0.0) >= wrong[name] / 8:
                reasons[name] = f"{who} differs as much"
        if len(reasons) == len(wrong):
            said = sorted(set(reasons.values()))
            return Outcome("explained", message="; ".join(said))
    first = next(name for name in wrong if name not in reasons)
    return Outcome("wrong", "compare", str(compare(first, got[first], wanted[first])))


def _differences(got: Arrays, wanted: Arrays, precision: str) -> dict[str, float]:
    """Names of differing outputs, with the difference relative to the largest value (infinite: in
    type or shape, or in the positions of non-finite values)."""
    found: dict[str, float] = {}
    for name, value in wanted.items():
        difference = compare(name, got[name], value)
        kind = _float_name(value)
        tolerance = max(TOLERANCES[kind], TOLERANCES[precision]) if kind else 0.0
        if difference.problem or difference.relative > tolerance:
            found[name] = float("inf") if difference.problem else difference.relative
    return found


def _float_name(array: Any) -> str:
    """``f32`` and the like; empty for non-floats."""
    return f"f{array.dtype.itemsize * 8}" if array.dtype.kind == "f" else ""


def all_compared(
    paths: Sequence[Path], jobs: int, limits: Limits, trial: Trial
) -> Iterator[Compared]:
    """Outcomes in the order of ``paths``."""
    with ProcessPoolExecutor(jobs, get_context("fork")) as pool:
        yield from pool.map(partial(compared, limits=limits, trial=trial), paths)


def summary(found: Sequence[Compared]) -> str:
    """Counts of outcomes, and of explanations of differences."""
    counts = Counter(each.outcome.kind for each in found)
    lines = [f"{len(found)} models"]
    lines += [f"  {kind:13}{count:6}" for kind, count in counts.most_common()]
    explained = Counter(e.outcome.message for e in found if e.outcome.kind == "explained")
    lines += [f"  explained: {message}: {count}" for message, count in explained.most_common()]
    return "\n".join(lines)


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--seconds", default=60, show_default=True, help="Processor time of a model.")
@click.option("--memory", default=4096, show_default=True, help="MiB of a model.")
@click.option("--target", default="native", show_default=True, help="opencl, webgpu …")
@click.option("--precision", type=click.Choice(PRECISIONS), default="f32", show_default=True)
@click.option("--size", type=int, help="Of every named dimension, as far as bounds allow.")
def main(
    folder: Path,
    jobs: int,
    seconds: int,
    memory: int,
    target: str,
    precision: str,
    size: int | None,
) -> None:
    """Compare both engines on the models of FOLDER; exit code 1 if something is found."""
    paths = sorted(folder.rglob("*.onnx"), key=lambda p: (len(p.name), p))
    limits = Limits(seconds, memory << 20)
    trial = Trial(Options(target=target, precision=precision, threads=1), size)
    found: list[Compared] = []
    for each in all_compared(paths, jobs, limits, trial):
        found.append(each)
        if each.is_finding or each.outcome.kind == "refused":
            first = each.outcome.message.split("\n")
            where = f"{each.path}: {each.outcome.kind} at {each.outcome.stage}"
            click.echo(f"{where}: {' '.join(first)[:400]}")
    click.echo(summary(found))
    sys.exit(1 if any(each.is_finding for each in found) else 0)


if __name__ == "__main__":
    main()
