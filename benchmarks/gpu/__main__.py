"""Kernels and models on an NVIDIA GPU: ``python -m benchmarks.gpu FOLDER``.

All results first, right or wrong: every op, kernels, models; between them times of the kernels,
then of the models beside other engines, as far as the ``--seconds`` go.  Each row is printed and
kept in ``FOLDER/results.json`` as it comes, and the next call goes on from there; ``--out`` gets
that file and a page of the bars.  Kernels are timed by the device's clock, their caches cleared
before, models by calls with inputs and results on the GPU; others in turns with them, each engine
in a process of its own.

``--prepare`` writes what a machine with a GPU wants: kernels compiled, and the models in
``--models`` without their large weights, which that machine makes from a seed and compiles.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.gpu import entries, kernels, needs
from benchmarks.gpu.cases import TOLERANCES, cases
from benchmarks.gpu.day import Day, run
from benchmarks.gpu.engines import MODELS, serve
from benchmarks.gpu.page import page
from benchmarks.gpu.results import Results

PAGE = "results.md"


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    made = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__)
    made.add_argument("folder", type=Path)
    made.add_argument("--target", default="cuda:sm_90a", help="what is compiled for")
    made.add_argument("--device", default="cuda", help="what is loaded for")
    made.add_argument("--prepare", action="store_true", help="compile, and write small models")
    made.add_argument("--models", type=Path, nargs="*", default=[], help="ONNX files to prepare")
    made.add_argument("--size", default="large", choices=("small", "medium", "large"))
    made.add_argument("--check", action="store_true", help="results only, no times")
    made.add_argument("--no-operators", action="store_true", help="leave the op matrix out")
    made.add_argument("--engines", nargs="*", default=MODELS, help="for models")
    made.add_argument("--seconds", type=float, default=500.0, help="for all of it")
    made.add_argument("--limit", type=float, default=90.0, help="seconds for engines to get ready")
    made.add_argument("--places", type=int, default=4, help="models that get ready together")
    made.add_argument("--workers", type=int, default=8, help="processes that compile")
    made.add_argument("--out", type=Path, help="gets the results and the page (FOLDER)")
    made.add_argument("--build", nargs=2, metavar=("STEM", "BATCH"), help=argparse.SUPPRESS)
    made.add_argument("--once", action="append", default=[], help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None, serve: Callable[..., None] = serve) -> int:
    """1 if a kernel or a model fails or gives another result, or there is nothing to do."""
    given = parser().parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.build:
        stem, batch = given.build
        entries.build(entries.Entry(given.folder, stem, int(batch)), given.target)
        return 0
    if given.once:
        return once(given.folder, given.once, given.device)
    if given.prepare:
        return prepare(given)
    day = Day(
        given.folder, given.target, given.device, perf_counter() + given.seconds, given.size,
        given.limit, given.places, given.workers, given.workers, not given.check,
        not given.no_operators, given.engines,
    )  # fmt: skip
    out = given.folder if given.out is None else given.out
    out.mkdir(parents=True, exist_ok=True)
    results = Results(given.folder, out)
    turns = run(day, results, serve)
    text = page(results, needs.gpu(), turns.missing)
    (out / PAGE).write_text(text)
    print(text)
    return int(not results.rows or any(row.fault for row in results.rows.values()))


def prepare(given: argparse.Namespace) -> int:
    """Write what is taken along, and say how much it is."""
    for case in cases("all" if given.size == "large" else given.size):
        kernels.prepare(given.folder, case, given.target)
    for path in given.models:
        entries.prepare(path, given.folder)
        print(f"{path.stem}: prepared", flush=True)
    size = sum(path.stat().st_size for path in given.folder.rglob("*") if path.is_file())
    print(f"{size / 2**20:.1f} MiB in {given.folder}")
    return 0


def once(folder: Path, names: Sequence[str], device: str) -> int:
    """Run kernels and compare: for programs that watch this one."""
    found = [case for case in cases("all") if case.name in names]
    wrong = [c.name for c in found if kernels.error(folder, c, device) > TOLERANCES[c.dtype]]
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
