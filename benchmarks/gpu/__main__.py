"""Kernels and models on an NVIDIA GPU: ``python -m benchmarks.gpu FOLDER``.

All results first, right or wrong; then times of the kernels, then of the models, as far as the
``--seconds`` go.  Each row is printed and kept in ``FOLDER/results.json`` as it comes.  Kernels are
timed by the device's clock, their caches cleared before, models by calls with inputs and results on
the GPU; PyTorch, where it is installed, does the same in turns.

``--prepare`` writes what a machine with a GPU wants: kernels compiled, and the models in
``--models`` without their large weights, which that machine makes from a seed and compiles.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.gpu import kernels, models, peers
from benchmarks.gpu.cases import cases
from benchmarks.gpu.results import Results


def main(arguments: Sequence[str] | None = None) -> int:
    """1 if a kernel or a model fails or gives another result, or there is nothing to do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cuda:sm_90a", help="what is compiled for")
    parser.add_argument("--device", default="cuda", help="what is loaded for")
    parser.add_argument("--prepare", action="store_true", help="compile, and write small models")
    parser.add_argument("--models", type=Path, nargs="*", default=[], help="ONNX files to prepare")
    parser.add_argument("--small", action="store_true", help="kernels for a processor's driver")
    parser.add_argument("--check", action="store_true", help="results only, no times")
    parser.add_argument("--seconds", type=float, default=500.0, help="for all of it")
    parser.add_argument("--workers", type=int, default=4, help="processes that compile models")
    parser.add_argument("--build", nargs=2, metavar=("STEM", "BATCH"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.build:
        stem, batch = given.build
        models.build(models.Entry(given.folder, stem, int(batch)), given.target)
        return 0
    if given.prepare:
        for case in cases(given.small):
            kernels.prepare(given.folder, case, given.target)
        for path in given.models:
            models.prepare(path, given.folder)
        return 0
    results = run(given)
    print(results.summary())
    return int(not results.rows or any(row.fault for row in results.rows.values()))


def run(given: argparse.Namespace) -> Results:
    """All rows, until the time is over."""
    end = perf_counter() + given.seconds
    folder, device, results = given.folder, given.device, Results(given.folder / "results.json")
    builds = models.start_builds(folder, given.target, given.workers)
    ready = [case for case in cases(given.small) if kernels.artifact(folder, case).exists()]
    for case in ready:
        results.add(kernels.checked(folder, case, device))
    torch = peers.torch_on_gpu()
    bandwidth = 0.0 if torch is None or given.check else peers.bandwidth(torch)
    for case in () if given.check else ready:
        row = results.rows[case.name]
        if not row.fault and perf_counter() < end:
            results.add(kernels.timed(folder, case, device, row, torch, bandwidth))
    for entry, build in builds.items():
        try:
            fault = build.result(max(end - perf_counter(), 0.0))
        except TimeoutError:
            build.cancel()
            continue
        row = models.failed(entry, fault) if fault else models.checked(entry, device)
        results.add(row)
    for entry in () if given.check else builds:
        row = results.rows.get(entry.name)
        if row is not None and not row.fault and perf_counter() < end:
            results.add(models.timed(entry, device, row, torch))
    return results


if __name__ == "__main__":
    raise SystemExit(main())
