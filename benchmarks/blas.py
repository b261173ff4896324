"""f32 products by modelcc's kernels and by a library, both in artifacts, on one core:
``python -m benchmarks.blas``.

The two are interleaved in one process, in CPU time; the minimum of each counts, since other load
slows both down, besides the median of the turns' ratios.
"""

from __future__ import annotations

import re
import time
from statistics import geometric_mean, median

import click
import numpy as np
from rich.console import Console
from rich.table import Table

import modelcc
from benchmarks.products import model, products
from modelcc.options import Options, library


@click.command()
@click.option("--library", "name", default="openblas", show_default=True, help="NAME[=PATH]")
@click.option("--only", default="", help="Regular expression that names must contain.")
@click.option("--seconds", default=1.0, show_default=True, help="For each product.")
def main(name: str, only: str, seconds: float) -> None:
    """Milliseconds of both, and the library's time by modelcc's."""
    table = Table("product", "modelcc, ms", name, "times as long", "median of turns")
    ratios: list[float] = []
    for product, sizes, constant in products():
        if not constant or not re.search(only, product):
            continue
        made, feeds = model(sizes, constant)
        own = Options(threads=1, strassen=False)
        called = Options(threads=1, strassen=False, libraries=(library(name),), kernels="library")
        nets = [modelcc.compile(made, options=options, cache=None) for options in (own, called)]
        first, second = (net.run(feeds)["y"] for net in nets)
        np.testing.assert_allclose(first, second, rtol=1e-3, atol=1e-3)
        times: list[tuple[float, float]] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times) < 9:
            stamps = [time.process_time()]
            for net in nets:
                net.run(feeds)
                stamps.append(time.process_time())
            times.append((stamps[1] - stamps[0], stamps[2] - stamps[1]))
        ours, theirs = (min(column) for column in zip(*times, strict=True))
        ratios.append(theirs / ours)
        turn = median(b / a for a, b in times)
        table.add_row(
            product, f"{1e3 * ours:.3f}", f"{1e3 * theirs:.3f}", f"{ratios[-1]:.2f}", f"{turn:.2f}"
        )
    Console(width=100).print(table)
    click.echo(f"geometric mean of the library's times by modelcc's: {geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
