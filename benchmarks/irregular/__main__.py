"""Operators with data-dependent work, transforms, products of run-time operands: ``python -m
benchmarks.irregular``.

Each model, with a named extent n, is compiled once and runs at n, 4 n and 16 n interleaved with
ONNX Runtime in one process; sorts and transforms with NumPy or SciPy, too.  ``growth`` is the time
at 16 n over that at n: 16 is linear.
"""

from __future__ import annotations

import re
from functools import partial
from statistics import geometric_mean

import click
import onnxruntime

import modelcc
from benchmarks.irregular import choices, images, integers, moves, products, sorts
from benchmarks.irregular.turns import turns_on

FAMILIES = (moves, sorts, images, integers, products, choices)
CASES = {name: case for family in FAMILIES for name, case in family.CASES.items()}


@click.command()
@click.option("--threads", default=1, show_default=True)
@click.option("--only", default="", help="Regular expression that names must contain.")
def main(threads: int, only: str) -> None:
    """Milliseconds at 16 n, growth from n, and how many times as long the others take."""
    turns = turns_on(threads)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    ratios: list[float] = []
    columns = f"{'':24}{'n':>7}{'16 n: ms':>10}{'growth':>8}"
    click.echo(f"{columns}   onnxruntime at n, 4 n, 16 n   NumPy or SciPy")
    for name, case in CASES.items():
        if not re.search(only, name):
            continue
        model = case.model()
        net = modelcc.compile(model, threads=threads, cache=None)
        peer = onnxruntime.InferenceSession(model.SerializeToString(), settings)
        rows: list[list[float]] = []
        for size in (case.least, 4 * case.least, 16 * case.least):
            feeds = case.inputs(size)
            runs = [partial(net.run, feeds), partial(peer.run, None, feeds)]
            if case.library is not None:
                runs.append(partial(case.library, feeds))
            rows.append(turns.times(runs))
        own = [row[0] for row in rows]
        peers = [row[1] / row[0] for row in rows]
        ratios += peers
        others = "".join(f"{row[2] / row[0]:8.2f}" for row in rows if len(row) > 2)
        click.echo(
            f"{name:24}{case.least:7}{1e3 * own[-1]:10.3f}{own[-1] / own[0]:8.1f}   "
            f"{''.join(f'{ratio:8.2f}' for ratio in peers)}      {others}"
        )
    click.echo(f"geometric mean against onnxruntime: {geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
