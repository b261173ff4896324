"""``modelcc profile``: how long each layer takes, on this machine or on a microcontroller."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

import click

from modelcc.api import compiled_model, default_jobs
from modelcc.artifact.replacement import replace_contents
from modelcc.cli.build_config import build_config_of
from modelcc.cli.console import note, output_console, print_json, progress_of
from modelcc.cli.microcontroller import MHZ, embedded_of, layer_facts, layer_table, milliseconds
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
from modelcc.cli.run import feeds_for
from modelcc.cli.verbosity import verbosity_options
from modelcc.driver import target_of
from modelcc.environment import Environment
from modelcc.feeds.files import read_feeds
from modelcc.ir.errors import ModelError
from modelcc.on_device.board_run import any_inputs, input_types, run_on_board
from modelcc.on_device.layers import LayerCost, layers_of, trace_events
from modelcc.options import Options
from modelcc.report.report import Report
from modelcc.report.tables import kernel_table
from modelcc.targets.mcu.target import McuTarget

HELP = """How long each step of MODEL takes: on this machine measured; on a microcontroller exact
numbers of instructions, counted in QEMU, and estimated cycles.

\b
  modelcc profile model.onnx                       the time of every kernel
  modelcc profile model.tflite --target cortex-m4  instructions of every layer
  modelcc profile model.tflite --target cortex-m4 --mhz 120
  modelcc profile model.onnx --trace trace.json    for chrome://tracing or ui.perfetto.dev

For microcontrollers QEMU and GCC for the processor are needed, and a C compiler for this machine.
"""

Span = tuple[str, float, Mapping[str, object]]


@click.command("profile", help=HELP)
@click.argument("model", type=MODEL)
@MHZ
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.json",
    help="Write the steps as a trace of Chrome's form (without --mhz a cycle is a microsecond).",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@compiling
@feeding
@verbosity_options
@click.pass_obj
def profile(
    environment: Environment,
    model: Path,
    mhz: float | None,
    trace: Path | None,
    as_json: bool,
    no_cache: bool,
    inputs: tuple[str, ...],
    seed: int,
    sizes: tuple[str, ...],
    **asked: Unpack[Compiling],
) -> None:  # fmt: skip
    """See HELP."""
    check_writable(trace)
    check_outputs([trace], [model])
    options = options_of(environment, asked)
    if not isinstance(target_of(options), McuTarget):
        with progress_of() as progress:
            cache = None if no_cache else environment.cache
            net = compiled_model(model, options, cache, default_jobs(environment), progress)
        report = net.report(profile=feeds_for(net, inputs, sizes_of(sizes), seed))
        _write_trace(trace, _steps(report), options)
        if as_json:
            print_json(json.loads(report.to_json()))
        else:
            output_console().print(kernel_table(report))
        return
    if sizes:
        raise ModelError("--size has no use on microcontrollers", (), "fix dimensions by --dim")
    with progress_of() as progress:
        embedded = embedded_of(model, options, build_config_of(environment, no_cache, progress))
        types = input_types(embedded)
        given, _ = read_feeds(inputs, types)
        feeds = any_inputs(types, seed) | given
        measured = run_on_board(embedded, feeds, f"-O{options.optimize}")
    if measured.counts is None:
        hint = "install gcc, with which the plugin that counts in QEMU is built"
        raise ModelError("there is no C compiler for this machine (cc)", (), hint)
    layers = layers_of(embedded.program, embedded.machine, measured.counts.steps)
    _write_trace(trace, [_span(layer, mhz) for layer in layers], options)
    if as_json:
        whole = {"instructions": measured.total, "ram": measured.ram, "flash": measured.flash}
        facts = {"model": model.name, "target": embedded.machine.name, **whole}
        print_json(
            {**facts, "layers": layer_facts(layers, mhz), "functions": measured.instructions}
        )
        return
    title = f"{model.name} on {embedded.machine.name}: instructions counted, cycles estimated"
    output_console().print(layer_table(layers, mhz, title))


def _span(layer: LayerCost, mhz: float | None) -> Span:
    duration = layer.cycles if mhz is None else milliseconds(layer.cycles, mhz) * 1e3
    facts = {"instructions": layer.instructions, "cycles": layer.cycles, "macs": layer.macs}
    return layer.name, duration, {**facts, "kernel": layer.function, "nodes": list(layer.source)}


def _steps(report: Report) -> list[Span]:
    return [
        (row.source[0] if row.source else row.function, (row.seconds or 0.0) * 1e6,
         {"kernel": row.function, "flops": row.flops, "nodes": list(row.source)})
        for row in report.kernels
    ]  # fmt: skip


def _write_trace(path: Path | None, spans: Sequence[Span], options: Options) -> None:
    if path is not None:
        text = json.dumps(trace_events(spans, f"modelcc {options.target}"))
        replace_contents(path, text)
        note(f"wrote {path}")
