"""f32 products on one core, as a fraction of its peak multiply-add rate in registers:
``python -m benchmarks.products``.

The loop of multiply-adds, modelcc and ONNX Runtime are interleaved in one process, in CPU time.
Other load slows all of them down, but memory-bound code more; so the minimum time of each is
compared, and the fraction at the median is shown as well.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import geometric_mean, median

import click
import numpy as np
import onnx
import onnx.parser
import onnxruntime
from onnx import numpy_helper
from rich.console import Console
from rich.table import Table

import modelcc
from benchmarks.machine import lanes, multiply_adds

SECONDS = 1.5
"""Measurement time per product."""

PEAK_STEPS, PEAK_TRIES = 50_000, 20
"""Rounds of the loop in registers, and its runs per turn: short and frequent, so that some are
undisturbed."""
WIDTHS = {"x86-64-v3": 8, "x86-64-v4": 16}
"""f32 lanes of the vectors by processor level."""

SQUARES = (512, 768, 1024, 1536, 2048)
ENCODERS = ((768, 768), (768, 2304), (768, 3072), (3072, 768))
"""Layers of bert-base, vit-base and gpt2: inputs and outputs."""
LLAMA = ((2048, 2048), (2048, 5632), (5632, 2048))
ROWS = (64, 128, 197)
BATCH = 8


def products() -> Iterator[tuple[str, tuple[int, int, int], bool]]:
    """Names, rows x reduction x columns, and whether the right operand is constant."""
    for n in SQUARES:
        yield f"{n} square", (n, n, n), True
        yield f"{n} square, run time", (n, n, n), False
    for rows in ROWS:
        yield from ((f"{rows} x {k} x {n}", (rows, k, n), True) for k, n in ENCODERS)
    for rows in (64, 128):
        yield from ((f"{rows} x {k} x {n}", (rows, k, n), True) for k, n in LLAMA)
    for k, n in ENCODERS:
        yield f"{BATCH} x 128 x {k} x {n}", (BATCH * 128, k, n), True


def model(
    sizes: tuple[int, int, int], constant: bool
) -> tuple[onnx.ModelProto, Mapping[str, object]]:
    """One MatMul, and its inputs."""
    rows, steps, columns = sizes
    text = (
        f"(float[{rows}, {steps}] x, float[{steps}, {columns}] w) => (float[{rows}, {columns}] y)"
    )
    made = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g {text} {{ y = MatMul(x, w) }}'
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, steps), np.float32)
    w = rng.standard_normal((steps, columns), np.float32)
    if not constant:
        return made, {"x": x, "w": w}
    made.graph.initializer.append(numpy_helper.from_array(w, "w"))
    del made.graph.input[1]
    return made, {"x": x}


def turns(runs: Sequence[Callable[[], object]]) -> list[list[float]]:
    """CPU seconds of each, interleaved."""
    found: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(found[-1]) < 9:
        for run, times, tries in zip(runs, found, (PEAK_TRIES, 1, 1), strict=True):
            for _ in range(tries):
                start = time.process_time()
                run()
                times.append(time.process_time() - start)
    return found


@click.command()
@click.option(
    "--cpu", default="native", show_default=True, help="Processor or level to compile for."
)
@click.option("--only", default="", help="Regular expression that names must contain.")
@click.option(
    "--strassen", is_flag=True, help="Allow Strassen's algorithm, of fewer multiplications."
)
def main(cpu: str, only: str, strassen: bool) -> None:
    """Milliseconds, shares of the peak, and ONNX Runtime's time by modelcc's."""
    peak, adds = multiply_adds(WIDTHS.get(cpu, lanes()), PEAK_STEPS)
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    table = Table(
        "product", "ms", "of peak", "at the median", "onnxruntime: of peak", "times as long"
    )
    ratios: list[float] = []
    for name, sizes, constant in products():
        if not re.search(only, name):
            continue
        made, feeds = model(sizes, constant)
        net = modelcc.compile(made, threads=1, cpu=cpu, strassen=strassen, cache=None)
        peer = onnxruntime.InferenceSession(made.SerializeToString(), settings)
        at_best, own, other = turns([peak, partial(net.run, feeds), partial(peer.run, None, feeds)])
        work = np.prod(sizes, dtype=np.float64) / adds * min(at_best)
        ratios.append(min(other) / min(own))
        shares = [work / min(own), work / median(own), work / min(other)]
        table.add_row(
            name, f"{1e3 * min(own):.3f}", *(f"{s:.1%}" for s in shares), f"{ratios[-1]:.2f}"
        )
    Console(width=110).print(table)
    click.echo(f"geometric mean of onnxruntime's times by modelcc's: {geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
