"""All engines on one model: each in a separate process, interleaved."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

from benchmarks import machine
from benchmarks.compilation import Compilation, compile_apart
from benchmarks.feeds import Sizes, feeds_for
from benchmarks.lock import exclusively
from benchmarks.messages import Failed, Task
from benchmarks.peers import COMPILED
from benchmarks.pool import Timing, Worker, measure, start
from benchmarks.rows import Row
from benchmarks.workload import Workload, workload


@dataclass(frozen=True)
class Plan:
    """Measurement settings: engines, the reference engine, turns and their length, limits.

    `lock` is a file that is locked during timing.
    """

    peers: tuple[str, ...]
    reference: str
    rounds: int
    seconds: float
    timeout: float
    lock: Path | None = None


def compare(plan: Plan, path: Path, peak: machine.Peaks, sizes: Sizes) -> tuple[Row, ...]:
    """All engines of the plan on one model, at the number of threads of `peak`."""
    feeds = feeds_for(path, sizes)
    work = workload(onnx.load(str(path)), feeds)
    task = Task("", path, peak.threads, cores(peak.threads), feeds)
    with TemporaryDirectory() as folder:
        compiled = _compilations(plan, path, peak.threads, Path(folder))
        started = {peer: _start(plan, task, peer, compiled, Path(folder)) for peer in plan.peers}
        workers = [worker for worker in started.values() if isinstance(worker, Worker)]
        measured = measure(workers, plan.rounds, plan.seconds, plan.timeout, plan.lock)
    base = started.get(plan.reference)
    expected = base.loaded.outputs if isinstance(base, Worker) else None
    baseline = measured.get(plan.reference)
    rows: list[Row] = []
    for peer, worker in started.items():
        row = Row(path.stem, peak.threads, peer)
        found = measured[peer] if isinstance(worker, Worker) else worker
        if isinstance(found, Failed) or isinstance(worker, Failed):
            reason = found.reason if isinstance(found, Failed) else ""
            rows.append(replace(row, reason=reason))
            continue
        row = _measured(row, worker, found, work, peak)
        speedup = found.ratio(baseline) if isinstance(baseline, Timing) else None
        error = None if expected is None else largest_error(worker.loaded.outputs, expected)
        row = replace(row, speedup=speedup, error=error)
        rows.append(_with_compilation(row, compiled.get(peer)))
    return tuple(rows)


def largest_error(actual: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> float:
    """Largest difference over all outputs, each relative to its largest expected magnitude.

    Infinity if an output is missing, has another shape, or is not finite.
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


def cores(threads: int) -> tuple[int, ...]:
    """The last available cores: the first ones serve most interrupts."""
    return tuple(sorted(os.sched_getaffinity(0))[-threads:])


def _compilations(
    plan: Plan, path: Path, threads: int, folder: Path
) -> dict[str, Compilation | Failed]:
    """Compilation costs by engine that runs compiled files, in `folder`."""
    found: dict[str, Compilation | Failed] = {}
    for peer in plan.peers:
        if peer in COMPILED:
            with exclusively(plan.lock):
                accuracy = COMPILED[peer]
                found[peer] = compile_apart(path, threads, folder / peer, plan.timeout, accuracy)
    return found


def _start(
    plan: Plan, task: Task, peer: str, compiled: Mapping[str, Compilation | Failed], folder: Path
) -> Worker | Failed:
    match compiled.get(peer):
        case Failed() as failed:
            return failed
        case Compilation():
            return start(replace(task, peer=peer, model=folder / peer), plan.timeout)
        case None:
            return start(replace(task, peer=peer), plan.timeout)


def _measured(row: Row, worker: Worker, timing: Timing, work: Workload, peak: machine.Peaks) -> Row:
    median = timing.median()
    low, high = timing.spread()
    gflops = 2e-6 * work.macs / median
    gigabytes = 1e-6 * work.constant_bytes / median
    return replace(
        row,
        milliseconds=median,
        low=low,
        high=high,
        rounds=timing.medians(),
        load_seconds=worker.loaded.load_seconds,
        peak_bytes=timing.peak_bytes,
        gflops=gflops,
        peak_share=gflops / peak.gflops,
        weight_gigabytes=gigabytes,
        read_share=gigabytes / peak.gigabytes,
    )


def _with_compilation(row: Row, compiled: Compilation | Failed | None) -> Row:
    if not isinstance(compiled, Compilation):
        return row
    return replace(
        row,
        compile_seconds=compiled.cold_seconds,
        cached_seconds=compiled.cached_seconds,
        compile_bytes=compiled.peak_bytes,
    )
