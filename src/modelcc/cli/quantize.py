"""``modelcc quantize``: a float model on integers of few bits."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from modelcc.cli.build_config import build_config_of
from modelcc.cli.console import note, output_console, print_json, progress_of
from modelcc.cli.outputs import check_apart, check_outputs
from modelcc.cli.parameters import MODEL, check_files
from modelcc.cli.verbosity import verbosity_options
from modelcc.driver import import_model
from modelcc.environment import Environment
from modelcc.ir.errors import ModelError
from modelcc.options import Options, dimension
from modelcc.quantization.quantising import quantised_model
from modelcc.quantization.report import LayerRow, QuantizationReport
from modelcc.quantization.running import Engine
from modelcc.quantization.settings import (
    ACTIVATIONS,
    FALLBACKS,
    METHODS,
    WEIGHTS,
    QuantizationSettings,
)
from modelcc.report.formats import byte_text, last_letters
from modelcc.runtime.pool import available_cores
from modelcc.sizes import bytes_of

HELP = """Write MODEL on integers of few bits: an ONNX model of QuantizeLinear and
DequantizeLinear, which any runtime reads, or a compiled one (.mcc).

Ranges of values are those of the calibration data: a .npz file with an array for each input,
samples along the first axis, or a folder of .npy or .npz files.

\b
  modelcc quantize model.onnx --calibration data.npz
  modelcc quantize model.onnx --calibration data.npz -o model.int8.onnx -o model.int8.mcc
  modelcc quantize model.onnx --calibration data.npz --max-error 0.01    mixed precision
  modelcc quantize model.onnx --activations none --weights int4          weights alone
"""
SHOWN = 40
"""Layers in the table."""

_DEFAULT = QuantizationSettings()


@click.command("quantize", help=HELP)
@click.argument("model", type=MODEL)
@click.option(
    "--calibration", type=click.Path(path_type=Path), metavar="FILE.npz|FOLDER",
    help="Examples of inputs.",
)  # fmt: skip
@click.option(
    "-o", "--output", "outputs", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Where to write: .onnx, .mcc, or both.  [default: MODEL.int8.onnx]",
)  # fmt: skip
@click.option("--report", type=click.Path(path_type=Path), metavar="FILE.json",
              help="Write the report as JSON.")  # fmt: skip
@click.option("--activations", type=click.Choice(list(ACTIVATIONS)), default=_DEFAULT.activations,
              show_default=True, help="Type of activations; none: weights alone.")  # fmt: skip
@click.option("--weights", type=click.Choice(list(WEIGHTS)), default=_DEFAULT.weights,
              show_default=True, help="Type of weights; int4 is for weights alone.")  # fmt: skip
@click.option("--method", type=click.Choice(METHODS), default=_DEFAULT.method,
              show_default=True, help="How ranges are found.")  # fmt: skip
@click.option("--percentile", type=float, default=_DEFAULT.percentile, show_default=True,
              help="Values in the range, in %, for --method percentile.")  # fmt: skip
@click.option("--symmetric", is_flag=True, help="Activations have zero point 0.")
@click.option("--per-channel/--per-tensor", default=True, show_default=True,
              help="Weights have a scale for each output, or one.")  # fmt: skip
@click.option("--block", type=click.IntRange(0), default=_DEFAULT.block, show_default=True,
              help="Weights alone: elements of a scale; 0: those of an output.")  # fmt: skip
@click.option("--equalize", is_flag=True, help="Bring channels of neighbours to like ranges.")
@click.option("--correct-bias", is_flag=True, help="Take mean errors of layers off biases.")
@click.option("--op", "ops", multiple=True, metavar="NAME",
              help="Quantise ops of this class only: Conv, MatMul …")  # fmt: skip
@click.option("--skip", multiple=True, metavar="NODE", help="Leave a node of the model as it is.")
@click.option("--sensitivity", is_flag=True,
              help="Report the error of the outputs with each layer alone quantised.")  # fmt: skip
@click.option("--max-error", type=float, metavar="X",
              help="Keep layers as --fallback says until the outputs' relative error is within "
                   "this.")  # fmt: skip
@click.option("--max-bytes", metavar="SIZE",
              help="Quantise layers until constants take this: 300K, 4M.")  # fmt: skip
@click.option("--fallback", type=click.Choice(FALLBACKS), default=_DEFAULT.fallback,
              show_default=True, help="What layers are kept in.")  # fmt: skip
@click.option("--threads", type=click.IntRange(1), metavar="N", help="Threads to measure on.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=SIZE", help="Fix a named dimension.")
@click.option("--no-cache", is_flag=True, help="Compile afresh and keep nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@verbosity_options
@click.pass_obj
def quantize(
    environment: Environment,
    model: Path,
    calibration: Path | None,
    outputs: tuple[Path, ...],
    report: Path | None,
    max_bytes: str | None,
    threads: int | None,
    dims: tuple[str, ...],
    no_cache: bool,
    as_json: bool,
    **asked: object,
) -> None:  # fmt: skip
    """See HELP."""
    most = None if max_bytes is None else bytes_of(max_bytes)
    settings = QuantizationSettings(max_bytes=most, **asked)  # type: ignore[reportArgumentType]
    places = outputs or (model.with_name(f"{model.name.split('.')[0]}.{suffix_of(settings)}.onnx"),)
    _check_places(places, report, model, calibration)
    count = threads or environment.threads or available_cores()
    options = Options(threads=count, cpu=environment.cpu, dims=tuple(map(dimension, dims)))
    with progress_of() as progress:
        config = build_config_of(environment, no_cache, progress)
        graph = import_model(model, options)
        found = quantised_model(graph, calibration, settings, Engine(options, config))
        for place in places:
            found.save(place)
        if report is not None:
            found.report.save(report)
    if as_json:
        print_json(found.report.as_dict())
    else:
        output_console().print(report_table(found.report))
        note(_result(found.report))
    for place in places:
        note(f"wrote {place} ({byte_text(place.stat().st_size)})")


def suffix_of(settings: QuantizationSettings) -> str:
    """What the file of a model is called by: its narrowest numbers."""
    return settings.weights if settings.activation is None else settings.activations


def _check_places(
    places: tuple[Path, ...], report: Path | None, model: Path, calibration: Path | None
) -> None:
    for place in places:
        if place.suffix not in (".onnx", ".mcc"):
            raise ModelError(f"cannot write {place}", (), "its name must end with .onnx or .mcc")
    check_files(*places, report)
    check_outputs([*places, report], [model, *([calibration] if calibration else [])])
    check_apart((*places, report))


def report_table(report: QuantizationReport) -> Table:
    """Layers, the worst ones where they are many, in the order of the model."""
    alone = any(row.alone is not None for row in report.layers)
    table = Table(title=f"{report.model}, layer by layer", title_justify="left")
    table.add_column("layer", no_wrap=True, overflow="ellipsis", min_width=12)
    for name in ("op", "bits", "scale", "zero", "SQNR dB", *(("alone",) if alone else ())):
        table.add_column(name, justify="right" if name != "op" else "left", no_wrap=True)
    worst = sorted(report.layers, key=lambda row: row.sqnr if row.sqnr is not None else 0.0)
    shown = {row.result for row in worst[:SHOWN]}
    for row in report.layers:
        if row.result in shown:
            table.add_row(Text(last_letters(row.name, 40)), row.op, *_cells(row, alone))
    if len(report.layers) > SHOWN:
        table.caption = f"and {len(report.layers) - SHOWN} better ones; --json has all"
    return table


def _cells(row: LayerRow, alone: bool) -> tuple[str, ...]:
    bits = f"{row.activations}" if row.weights is None else f"{row.activations} x {row.weights}"
    scale = "" if row.scale is None else f"{row.scale:.4g}"
    zero = "" if row.zero is None else str(row.zero)
    sqnr = "" if row.sqnr is None else f"{row.sqnr:.1f}"
    more = ("" if row.alone is None else f"{row.alone:.2e}",) if alone else ()
    return bits, scale, zero, sqnr, *more


def _result(report: QuantizationReport) -> str:
    sizes = f"constants {byte_text(report.bytes_before)}, now {byte_text(report.bytes_after)}"
    if not report.runs:
        return sizes
    rows = (f"{row.name}: {row.sqnr:.1f} dB, error {row.error:.2e}" for row in report.outputs)
    return f"{sizes}\n" + "\n".join(rows)
