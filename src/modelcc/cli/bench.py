"""``modelcc bench``: latency and memory, side by side with other engines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Unpack, cast

import click
from rich.table import Table

from modelcc.api import load
from modelcc.bench.benchmarking import EngineMeasurement, measure
from modelcc.bench.worker import ENGINES
from modelcc.cli.build_config import build_config_of
from modelcc.cli.console import output_console, print_json, progress_of, right
from modelcc.cli.parameters import MODEL, Compiling, compiling, feeding, options_of, sizes_of
from modelcc.cli.verbosity import verbosity_options
from modelcc.driver import compile_model
from modelcc.environment import Environment
from modelcc.frontends.choice import ONNX, frontend_of
from modelcc.ir.errors import ModelError
from modelcc.report.formats import byte_text
from modelcc.verification.comparison import compare_all
from modelcc.verification.verification import Request, subject_of

HELP = """Measure the latency and memory of the compiled MODEL (.onnx, or a .mcc as it is), and of
other engines in turns with it, each in a process of its own. Times are medians.

\b
  modelcc bench model.onnx
  modelcc bench model.onnx --against onnxruntime --threads 1
  modelcc bench model.onnx --size batch=8 --json
  modelcc bench model.mcc
"""


@click.command("bench", help=HELP)
@click.argument("model", type=MODEL)
@click.option(
    "--against",
    "peers",
    multiple=True,
    metavar="ENGINE",
    help=f"Another engine: {', '.join(sorted(set(ENGINES) - {'modelcc'}))}.",
)
@click.option(
    "--rounds", type=click.IntRange(1), default=15, show_default=True, help="Turns of each engine."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@compiling
@feeding
@verbosity_options
@click.pass_obj
def bench(
    environment: Environment,
    model: Path,
    peers: tuple[str, ...],
    rounds: int,
    as_json: bool,
    no_cache: bool,
    inputs: tuple[str, ...],
    seed: int,
    sizes: tuple[str, ...],
    **asked: Unpack[Compiling],
) -> None:  # fmt: skip
    """See HELP."""
    options = options_of(environment, asked)
    unknown = [name for name in peers if name not in ENGINES]
    if unknown:
        raise ModelError(f"there is no engine {unknown[0]!r}", (), f"there is {', '.join(ENGINES)}")
    if inputs:
        raise ModelError("bench uses random inputs", (), "give --seed and --size instead of -i")
    with progress_of() as progress:
        request = Request(
            model,
            options,
            build_config_of(environment, no_cache, progress),
            sizes=sizes_of(sizes),
            seed=seed,
        )
        measured = _compiled_file if model.suffix == ".mcc" else _model
        found, chosen = measured(request, ("modelcc", *dict.fromkeys(peers)), rounds)
    if as_json:
        named = {name: chosen[name] for name in sorted(chosen)}
        head = {"model": str(model), "threads": options.threads, "sizes": named}
        print_json({**head, "engines": _figures(found)})
    else:
        output_console().print(_table(found, model, options.threads, chosen))


Measured = tuple[tuple[EngineMeasurement, ...], Mapping[str, int]]
"""What was measured, and at which sizes of named dimensions."""


def _compiled_file(request: Request, engines: tuple[str, ...], rounds: int) -> Measured:
    model = cast(Path, request.model)
    _refuse_peers(model, engines)
    options = request.options
    net = load(model, threads=options.threads, target=options.target)
    chosen = net.nominal_sizes(request.sizes)
    feeds = net.random_inputs(chosen, request.seed)
    settings = {"threads": options.threads, "target": options.target, "artifact": str(model)}
    found = measure(engines, model, feeds, settings, rounds, request.config.report)
    return found, chosen


def _model(request: Request, engines: tuple[str, ...], rounds: int) -> Measured:
    model, options, config = cast(Path, request.model), request.options, request.config
    if frontend_of(model) is not ONNX:
        _refuse_peers(model, engines)
    subject = subject_of(request)
    compiled = compile_model(model, options, config)
    with TemporaryDirectory() as folder:
        artifact = Path(folder, "model.mcc")
        compiled.save(artifact)
        settings = {"threads": options.threads, "target": options.target, "artifact": str(artifact)}
        found = measure(engines, model, subject.feeds, settings, rounds, config.report)
    return found, subject.sizes


def _refuse_peers(model: Path, peers: tuple[str, ...]) -> None:
    for name in peers:
        if name != "modelcc":
            hint = f"bench an .onnx file of the same model against {name}"
            raise ModelError(f"{name} runs ONNX models only", (str(model),), hint)


def _figures(found: tuple[EngineMeasurement, ...]) -> dict[str, object]:
    return {
        m.engine: {
            "seconds": m.median,
            "spread": m.spread,
            "load": m.load,
            "peak_bytes": m.peak,
            "difference": _difference(m, found[0]),
        }
        for m in found
    }


def _difference(measured: EngineMeasurement, first: EngineMeasurement) -> float:
    differences = compare_all(first.outputs, measured.outputs)
    return max((d.relative if not d.problem else float("inf") for d in differences), default=0.0)


def _table(
    found: tuple[EngineMeasurement, ...], model: Path, threads: int, sizes: Mapping[str, int]
) -> Table:
    named = "".join(f", {name} = {sizes[name]}" for name in sorted(sizes))
    numbers = right("ms", "±", "speed", "load s", "peak memory", "difference")
    title = f"{model.name}, {threads} threads{named}"
    table = Table("engine", *numbers, title=title, title_justify="left")
    for m in found:
        speed = found[0].median / m.median
        cells = [f"{m.median * 1e3:.3f}", f"{100 * m.spread:.1f} %", f"{speed:.2f} ×"]
        cells += [f"{m.load:.2f}", byte_text(m.peak), f"{_difference(m, found[0]):.1e}"]
        table.add_row(m.engine, *cells)
    return table
