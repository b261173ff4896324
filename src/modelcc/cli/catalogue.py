"""``modelcc ops`` and ``modelcc targets``: what there is."""

from __future__ import annotations

import click
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from modelcc.cli.console import output_console, print_json
from modelcc.cli.verbosity import verbosity_options
from modelcc.frontends.kit.layers import LAYERS
from modelcc.frontends.onnx.support import operators
from modelcc.ir.op import Op
from modelcc.ops.accepted import accepted, summary
from modelcc.ops.registry import dialects
from modelcc.targets.base import TargetOptions
from modelcc.targets.registry import make_target, target_names

OPS_HELP = """List the ops of the graph level, with what is known of each: its result's type and
meaning (always), code (compute), simpler ops (decompose), gradient (grad), element types of
the first operand.  With --onnx, the operators of the standard and how each is imported; with
--frontends, how ONNX, PyTorch, StableHLO and TFLite call the standard
layers.

\b
  modelcc ops
  modelcc ops conv
  modelcc ops --onnx
  modelcc ops --frontends
  modelcc ops --json
"""

TARGETS_HELP = """List the kinds of machines that models can be compiled for.

Packages add targets by the entry point group modelcc.targets.
"""

FACETS = ("compute", "algorithm", "decompose", "grad")


@click.command("ops", help=OPS_HELP)
@click.argument("word", default="")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@click.option("--onnx", "as_onnx", is_flag=True, help="List the operators of ONNX instead.")
@click.option("--frontends", "as_layers", is_flag=True, help="List the standard layers instead.")
@verbosity_options
def ops(word: str, as_json: bool, as_onnx: bool, as_layers: bool) -> None:
    """See OPS_HELP."""
    if as_layers:
        _layers(word, as_json)
        return
    if as_onnx:
        _onnx(word, as_json)
        return
    found = [op for d in dialects() for op in d.ops if word.lower() in op.mnemonic().lower()]
    if as_json:
        print_json({op.mnemonic(): _described(op) for op in found})
        return
    console = output_console()
    for op in found:
        console.print(Text(op.mnemonic(), "bold"))
        for text, style in ((first_line(op), ""), (_known(op), "dim")):
            console.print(Padding(Text(text, style), (0, 0, 0, 4), expand=False))


def _known(op: type[Op]) -> str:
    """Facets and the element types of the first operand."""
    elements = summary(accepted(op))
    return " · ".join((*facets(op), *([elements] if elements else ())))


def _described(op: type[Op]) -> dict[str, object]:
    dtypes = [dtype.name for dtype in accepted(op)]
    return {"facets": facets(op), "dtypes": dtypes, "doc": first_line(op)}


def _onnx(word: str, as_json: bool) -> None:
    """Operators of the standard: the operator sets that changed them, how they are imported."""
    found = [s for s in operators() if word.lower() in s.qualified.lower()]
    if as_json:
        rows = {s.qualified: (s.versions, s.how, s.operands) for s in found}
        names = ("versions", "imported", "operands")
        print_json({name: dict(zip(names, own, strict=True)) for name, own in rows.items()})
        return
    table = Table("operator", "changed in operator sets", "imported")
    for support in found:
        versions = ", ".join(map(str, support.versions))
        table.add_row(support.qualified, versions, support.how or "no")
    output_console().print(table)


def _layers(word: str, as_json: bool) -> None:
    """The standard layers, and the operators that they are in each source of models."""
    found = [layer for layer in LAYERS if word.lower() in layer.name.lower()]
    if as_json:
        print_json({x.name: {"onnx": x.onnx, "aten": x.aten, "stablehlo": x.stablehlo,
                             "tflite": x.tflite} for x in found})  # fmt: skip
        return
    table = Table("layer", "ONNX", "ATen", "StableHLO", "TFLite")
    for x in found:
        columns = (x.onnx, x.aten, x.stablehlo, x.tflite)
        table.add_row(x.name, *(", ".join(names) for names in columns))
    output_console().print(table)


@click.command("targets", help=TARGETS_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
@verbosity_options
def targets(as_json: bool) -> None:
    """See TARGETS_HELP."""
    found = [make_target(name, TargetOptions()) for name in target_names()]
    if as_json:
        described = {t.name: {"machine": t.description, "forms": t.forms} for t in found}
        print_json(described)
        return
    table = Table("target", "machine", "emits")
    for target in found:
        table.add_row(target.name, Text(target.description), ", ".join(target.forms))
    output_console().print(table)


def facets(op: type[Op]) -> list[str]:
    """What is known of an op beyond its type and meaning."""
    return [facet for facet in FACETS if op.has(facet)]


def first_line(op: type[Op]) -> str:
    """The op's contract."""
    return (op.__doc__ or "").strip().splitlines()[0] if op.__doc__ else ""
