"""Runs engines side by side on the same models: `python -m benchmarks.compare --help`."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path

import click
import numpy as np
import onnx
from rich.console import Console

from benchmarks import machine, peers
from benchmarks.feeds import Sizes, feeds_for
from benchmarks.messages import Failed, Task
from benchmarks.pool import Timing, Worker, measure, start
from benchmarks.results import Comparison, Row, markdown, table, to_json
from benchmarks.workload import Workload, workload

FOLDER = Path(__file__).resolve().parent
SHORT = ("mlp", "autoencoder", "ds_cnn", "mnist_cnn", "mobilenetv2_100")


@dataclass(frozen=True)
class Plan:
    """How to measure."""

    peers: tuple[str, ...]
    reference: str
    rounds: int
    seconds: float
    timeout: float


def compare(plan: Plan, path: Path, peak: machine.Peaks, sizes: Sizes) -> tuple[Row, ...]:
    """All engines of the plan on one model, at the number of threads of `peak`."""
    feeds = feeds_for(path, sizes)
    work = workload(onnx.load(str(path)), feeds)
    cores = _cores(peak.threads)
    started = {
        peer: start(Task(peer, path, peak.threads, cores, feeds), plan.timeout)
        for peer in plan.peers
    }
    workers = [worker for worker in started.values() if isinstance(worker, Worker)]
    measured = measure(workers, plan.rounds, plan.seconds, plan.timeout)
    base = started.get(plan.reference)
    expected = base.loaded.outputs if isinstance(base, Worker) else None
    baseline = measured.get(plan.reference)
    rows: list[Row] = []
    for peer, worker in started.items():
        found = worker if isinstance(worker, Failed) else measured[peer]
        if isinstance(found, Failed) or isinstance(worker, Failed):
            assert isinstance(found, Failed)
            rows.append(Row(path.stem, peak.threads, peer, reason=found.reason))
            continue
        speedup = found.ratio(baseline) if isinstance(baseline, Timing) else None
        error = None if expected is None else largest_error(worker.loaded.outputs, expected)
        rows.append(_row(path.stem, worker, found, speedup, error, work, peak))
    return tuple(rows)


def largest_error(actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """Largest difference over all outputs, each relative to its largest expected magnitude.

    Infinity where an output is missing, has another shape, or is not finite.
    """
    worst = 0.0
    for name, reference in expected.items():
        value = actual.get(name)
        if value is None or value.shape != reference.shape:
            return float("inf")
        if reference.size == 0:
            continue
        wide = reference.astype(np.float64)
        difference = float(np.abs(value.astype(np.float64) - wide).max())
        scale = float(np.abs(wide).max()) or 1.0
        worst = max(worst, difference / scale if np.isfinite(difference) else float("inf"))
    return worst


def _row(
    model: str,
    worker: Worker,
    timing: Timing,
    speedup: float | None,
    error: float | None,
    work: Workload,
    peak: machine.Peaks,
) -> Row:
    median = timing.median()
    low, high = timing.spread()
    gflops = 2e-6 * work.macs / median
    return Row(
        model=model,
        threads=peak.threads,
        peer=worker.peer,
        milliseconds=median,
        low=low,
        high=high,
        speedup=speedup,
        error=error,
        load_seconds=worker.loaded.load_seconds,
        peak_bytes=timing.peak_bytes,
        gflops=gflops,
        peak_share=gflops / peak.gflops,
        weight_gigabytes=1e-6 * work.constant_bytes / median,
    )


def _cores(threads: int) -> tuple[int, ...]:
    """The last cores we may use: the first ones serve most interrupts."""
    return tuple(sorted(os.sched_getaffinity(0))[-threads:])


def _versions(names: Sequence[str]) -> dict[str, str]:
    """Versions of the installed engines."""
    found = {"Python": platform.python_version()}
    for name in names:
        package = peers.PACKAGES.get(name, name)
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _paths(names: Sequence[str], folder: Path) -> list[Path]:
    """Models by name in `folder` or by path; all of `folder` when none is named."""
    if not names:
        return sorted(folder.glob("*.onnx"))
    paths = [Path(name) if name.endswith(".onnx") else folder / f"{name}.onnx" for name in names]
    for path in paths:
        if not path.exists():
            raise click.BadParameter(f"no {path}; python -m benchmarks.zoo makes models")
    return [path.resolve() for path in paths]


def _sizes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """From `input=1x3x224x224` to shapes by input name."""
    pairs = [text.rsplit("=", 1) for text in texts]
    return {name: tuple(int(size) for size in shape.split("x")) for name, shape in pairs}


def _write(found: Comparison, folder: Path) -> Path:
    """Writes the Markdown and the JSON form; returns their path without suffix."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = "".join(character for character in found.date if character.isdigit())
    stem = folder / f"compare-{digits}"
    stem.with_suffix(".md").write_text(markdown(found))
    stem.with_suffix(".json").write_text(to_json(found))
    return stem


def _words(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


@click.command()
@click.option("--models", default="", callback=_words, help="Names or .onnx paths, by comma.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER / "models")
@click.option("--threads", default="1,2", show_default=True, callback=_words)
@click.option("--peers", "names", default=",".join(peers.DEFAULT), show_default=True)
@click.option("--reference", default="onnxruntime", show_default=True, help="Engine to relate to.")
@click.option("--rounds", default=10, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=0.2, show_default=True, help="Length of a turn.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds to load or compile.")
@click.option("--shape", "shapes", multiple=True, help="INPUT=1x3x224x224, for a symbolic input.")
@click.option("--short", is_flag=True, help="Few small models, few short rounds.")
@click.option("--out", type=click.Path(path_type=Path), default=FOLDER / "results")
def main(
    models: tuple[str, ...],
    folder: Path,
    threads: tuple[str, ...],
    names: str,
    reference: str,
    rounds: int,
    seconds: float,
    timeout: float,
    shapes: tuple[str, ...],
    short: bool,
    out: Path,
) -> None:
    """Compare modelcc with other engines on latency, accuracy, load time and memory."""
    chosen = tuple(name for name in names.split(",") if name)
    unknown = [name for name in chosen if name not in peers.LOADERS]
    if unknown:
        raise click.BadParameter(f"no engine {unknown[0]!r}; there are {', '.join(peers.LOADERS)}")
    if short:
        models, rounds, seconds = models or SHORT, min(rounds, 3), min(seconds, 0.05)
    plan = Plan(chosen, reference, rounds, seconds, timeout)
    console = Console()
    peaks = tuple(machine.peaks(_cores(int(count))) for count in threads)
    rows: list[Row] = []
    for path in _paths(models, folder):
        for peak in peaks:
            here = compare(plan, path, peak, _sizes(shapes))
            console.print(table(here, reference))
            for row in here:
                if row.reason:
                    console.print(f"{row.peer} is not available: {row.reason}", style="dim")
            rows += here
    date = f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}"
    found = Comparison(machine.describe(), date, reference, _versions(chosen), peaks, tuple(rows))
    console.print(f"Wrote {_write(found, out)} (.md, .json)")


if __name__ == "__main__":
    main()
