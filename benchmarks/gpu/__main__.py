"""Kernels and models on an NVIDIA GPU: ``python -m benchmarks.gpu FOLDER``.

The phase ``check``: kernels and models, right or wrong, each of their kernels timed by itself with
``--profile``; between them times of the single kernels, and in what is left NVIDIA's checkers and
every op.  The phase ``times``: models beside other engines, as far as the ``--seconds`` go.  Each
row is printed and kept in ``FOLDER/results.json`` as it comes, and the next call goes on from
there; ``--out`` gets that file, a page of the bars, profiles, and whole tracebacks of faults.
Kernels are timed by the device's clock, their caches cleared before, models by calls with inputs
and results on the GPU; others in turns with them, each engine in a process of its own.

``--prepare`` writes what a machine with a GPU wants: kernels compiled, and the models in
``--models`` without their large weights, which that machine makes from a seed and compiles;
``--pack`` makes one archive of it.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.gpu import entries, kernels, needs
from benchmarks.gpu.cases import TOLERANCES, cases
from benchmarks.gpu.day import CHECK, TIMES, Day, run
from benchmarks.gpu.engines import MODELS, serve
from benchmarks.gpu.pack import pack
from benchmarks.gpu.page import page
from benchmarks.gpu.results import Results

PAGE = "results.md"
ORDER = {f"{dtype}x{batch}": (dtype, batch) for dtype, batch in entries.ORDER}
ASKED = {f"{kind}x{batch}": (kind, batch) for kind, batch in entries.OTHERS}


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    made = argparse.ArgumentParser(prog="benchmarks.gpu", description=__doc__)
    made.add_argument("folder", type=Path)
    made.add_argument("--target", default="cuda:sm_90a", help="what is compiled for")
    made.add_argument("--device", default="cuda", help="what is loaded for")
    made.add_argument("--prepare", action="store_true", help="compile, and write small models")
    made.add_argument("--models", type=Path, nargs="*", default=[], help="ONNX files to prepare")
    made.add_argument("--size", default="large", choices=("small", "medium", "large"))
    made.add_argument("--pack", type=Path, help="with --prepare: an archive of it, as tar.xz")
    made.add_argument("--wheel", type=Path, action="append", default=[], help="goes along, too")
    made.add_argument("--kernels", nargs="*", help="only those whose names have one of these words")
    made.add_argument("--phase", choices=(CHECK, TIMES), help="one of the two (both)")
    made.add_argument(
        "--order", nargs="*", choices={**ORDER, **ASKED}, default=[*ORDER], help="of models"
    )
    made.add_argument("--profile", action="store_true", help="times of each kernel by itself")
    made.add_argument("--ncu", type=int, default=0, help="kernels for NVIDIA's profiler")
    made.add_argument("--no-operators", action="store_true", help="leave the op matrix out")
    made.add_argument("--engines", nargs="*", default=MODELS, help="for models")
    made.add_argument("--libraries", nargs="*", help="beside which kernels are timed (all)")
    made.add_argument("--seconds", type=float, default=500.0, help="for all of it")
    made.add_argument("--limit", type=float, default=90.0, help="seconds for engines to get ready")
    made.add_argument("--places", type=int, default=4, help="models that get ready together")
    made.add_argument("--workers", type=int, default=8, help="processes that compile")
    made.add_argument("--out", type=Path, help="gets the results and the page (FOLDER)")
    made.add_argument(
        "--build", nargs=3, metavar=("STEM", "BATCH", "PRECISION"), help=argparse.SUPPRESS
    )
    made.add_argument("--once", action="append", default=[], help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str] | None = None, serve: Callable[..., None] = serve) -> int:
    """1 if a kernel or a model fails or gives another result, or there is nothing to do."""
    given = parser().parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.build:
        os.nice(10)
        stem, batch, precision = given.build
        entries.build(entries.Entry(given.folder, stem, int(batch), precision), given.target)
        return 0
    if given.once:
        return once(given.folder, given.once, given.device)
    if given.prepare:
        return prepare(given)
    day = Day(
        given.folder, given.target, given.device, perf_counter() + given.seconds, given.size,
        given.limit, given.places, given.workers, given.workers,
        (given.phase,) if given.phase else (CHECK, TIMES), not given.no_operators, given.engines,
        [{**ORDER, **ASKED}[name] for name in given.order], given.profile, given.ncu, given.kernels,
        given.libraries,
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
    if given.pack is not None:
        print(f"{pack(given.folder, given.pack, given.wheel) / 2**20:.1f} MiB in {given.pack}")
    return 0


def once(folder: Path, names: Sequence[str], device: str) -> int:
    """Run kernels and compare: for programs that watch this one."""
    found = [case for case in cases("all") if case.name in names]
    wrong = [c.name for c in found if kernels.error(folder, c, device) > TOLERANCES[c.dtype]]
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
