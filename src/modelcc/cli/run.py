"""``modelcc run``: a model on inputs from files, or random ones."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Unpack

import click
import numpy as np
from rich.table import Table
from rich.text import Text

from modelcc.api import Model, compiled_model, default_jobs, load
from modelcc.artifact.replacement import replace_file
from modelcc.cli.console import output_console, print_json, progress_of
from modelcc.cli.outputs import check_outputs
from modelcc.cli.parameters import (
    MODEL,
    Compiling,
    check_writable,
    compiling,
    feeding,
    options_of,
    sizes_of,
)
from modelcc.cli.verbosity import verbosity_options
from modelcc.environment import Environment
from modelcc.feeds.files import read_feeds
from modelcc.feeds.npz import write_npz
from modelcc.interpreted import BytecodeModel, load_bytecode
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array, TensorType, dtype_of

HELP = """Run MODEL (.onnx or a compiled .mcc) and show its outputs.

\b
  modelcc run model.onnx                       on random inputs
  modelcc run model.mcc -i image=cat.npy       on an array from a file
  modelcc run model.mcc -i inputs.npz -o outputs.npz
  modelcc run model.onnx --size batch=8        random inputs of this size
  modelcc run model.onnx --profile             the time of every kernel
  modelcc run model.mcb --interpreter folder/  bytecode, by the interpreter in a folder
"""


@click.command("run", help=HELP)
@click.argument("model", type=MODEL)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.npz",
    help="Write the outputs into this file.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Give up runs that take longer, on devices that can be left (cuda, amdgpu).",
)
@click.option(
    "--repeat", type=click.IntRange(1), default=10, show_default=True, help="Runs to time."
)
@click.option(
    "--sha256", metavar="HEX", help="Refuse a .mcc that is not this file, as sha256sum tells it."
)
@click.option(
    "--interpreter",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="What runs bytecode (.mcb): the folder that --emit interpreter wrote.",
)
@click.option("--profile", is_flag=True, help="Also measure each kernel.")
@click.option("--json", "as_json", is_flag=True, help="Print outputs' facts and times as JSON.")
@compiling
@feeding
@verbosity_options
@click.pass_obj
def run(
    environment: Environment,
    model: Path,
    output: Path | None,
    timeout: float | None,
    repeat: int,
    sha256: str | None,
    interpreter: Path | None,
    profile: bool,
    as_json: bool,
    no_cache: bool,
    inputs: tuple[str, ...],
    seed: int,
    sizes: tuple[str, ...],
    **asked: Unpack[Compiling],
) -> None:  # fmt: skip
    """See HELP."""
    check_writable(output)
    files = [Path(item.partition("=")[2] or item) for item in inputs]
    check_outputs([output], [model, *files])
    options = options_of(environment, asked)
    net: Model | BytecodeModel
    if model.suffix == ".mcb":
        if profile:
            raise ModelError("bytecode has no profile here", (str(model),), "leave --profile out")
        net = load_bytecode(model, interpreter)
    elif model.suffix == ".mcc":
        given, paths = (options.threads, options.target), dict(options.libraries)
        net = load(model, threads=given[0], target=given[1], sha256=sha256, libraries=paths)
    elif sha256:
        hint = "compile the model, and pin the file that is written"
        raise ModelError("--sha256 pins a compiled model (.mcc)", (str(model),), hint)
    else:
        with progress_of() as progress:
            cache = None if no_cache else environment.cache
            net = compiled_model(model, options, cache, default_jobs(environment), progress)
    if timeout is not None:
        _limit(net, timeout)
    feeds = feeds_for(net, inputs, sizes_of(sizes), seed)
    results = net.run(feeds)
    states = net.states
    times = timed(net, feeds, repeat)
    if output is not None:
        replace_file(output, lambda path: save_arrays(path, results))
    if as_json:
        known = {"outputs": {n: facts(a) for n, a in results.items()}, "seconds": times}
        kept = {"states": {n: facts(a) for n, a in states.items()}} if states else {}
        print_json(known | kept)
        return
    console = output_console()
    console.print(_array_table("output", results))
    if states:
        console.print(_array_table("state", states))
    console.print(f"{median(times) * 1e3:.3f} ms (median of {repeat}, {options.threads} threads)")
    if profile and isinstance(net, Model):
        # Reports know the compiler, which a model that is found in the cache does not need.
        tables = import_module("modelcc.report.tables")
        console.print(tables.report_tables(net.report(profile=feeds)))


def _limit(net: Model | BytecodeModel, seconds: float) -> None:
    if not isinstance(net, Model):
        raise ModelError("bytecode runs to its end here", (), "leave --timeout out")
    net.limit(seconds)


def feeds_for(
    net: Model | BytecodeModel, items: tuple[str, ...], sizes: dict[str, int], seed: int
) -> dict[str, Array]:
    """Arrays from files for the inputs named there, random ones for the others."""
    types = {spec.name: TensorType(spec.shape, spec.dtype) for spec in net.inputs}
    given, missing = read_feeds(items, types)
    return net.random_inputs(sizes, seed) | given if missing else given


def timed(net: Model | BytecodeModel, feeds: dict[str, Array], repeat: int) -> list[float]:
    """Seconds of each of ``repeat`` calls."""
    times: list[float] = []
    for _ in range(repeat):
        start = perf_counter()
        net.run(feeds)
        times.append(perf_counter() - start)
    return times


def save_arrays(path: Path, arrays: dict[str, Array]) -> None:
    """Write named arrays as .npz."""
    write_npz(path, arrays)


def facts(array: Array) -> dict[str, Any]:
    """Type, range and first values of an array."""
    known: dict[str, Any] = {"type": f"{dtype_of(array)}{list(array.shape)}"}
    if array.size and array.dtype.kind != "O":
        wide = array.astype(np.float64)
        known |= {"min": float(wide.min()), "max": float(wide.max()), "mean": float(wide.mean())}
    return known | {"first": array.reshape(-1)[:4].tolist()}


def _array_table(what: str, results: dict[str, Array]) -> Table:
    table = Table(what, "type", "min", "max", "mean", "first values")
    for name, array in results.items():
        known = facts(array)
        numbers = [f"{known[k]:.5g}" if k in known else "" for k in ("min", "max", "mean")]
        first = ", ".join(f"{value:.5g}" if isinstance(value, float) else str(value)
                          for value in known["first"])  # fmt: skip
        table.add_row(*(Text(cell) for cell in (name, known["type"], *numbers, first)))
    return table
