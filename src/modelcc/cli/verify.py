"""``modelcc verify``: is the compiled model right, and if not, where does it go wrong?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Unpack

import click
from rich.table import Table
from rich.text import Text

from modelcc.artifact.file import read_artifact
from modelcc.cli.build_config import build_config_of
from modelcc.cli.console import output_console, print_json, progress_of
from modelcc.cli.parameters import MODEL, Compiling, compiling, feeding, options_of, sizes_of
from modelcc.cli.verbosity import verbosity_options
from modelcc.driver import import_for, target_of
from modelcc.environment import Environment
from modelcc.feeds.files import read_feeds
from modelcc.ir.errors import ModelError
from modelcc.verification.comparison import Difference
from modelcc.verification.verification import Request, Verification, fixed_sizes, verified

HELP = """Compare the compiled MODEL with the reference interpreter, and with onnxruntime
where that is installed, on the same inputs. The exit code is 1 if they differ.

\b
  modelcc verify model.onnx
  modelcc verify model.onnx -i image=cat.npy --size batch=4
  modelcc verify model.mcc --against model.onnx
  modelcc verify model.onnx --layers    name the first node whose result is wrong
  modelcc verify model.onnx --bisect    name the pass, and the rewrite in it, at fault
"""


@click.command("verify", help=HELP)
@click.argument("model", type=MODEL)
@click.option(
    "--against",
    type=MODEL,
    metavar="FILE.onnx",
    help="The model that MODEL, a .mcc, was made from.",
)
@click.option("--layers", is_flag=True, help="Keep the result of every node and compare each.")
@click.option("--bisect", is_flag=True, help="Interpret the program between passes.")
@click.option(
    "--tolerance",
    type=float,
    metavar="X",
    help="Accepted error as a fraction of the greatest value.  [default: 1e-4 for f32]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@compiling
@feeding
@verbosity_options
@click.pass_context
def verify(
    context: click.Context,
    model: Path,
    against: Path | None,
    layers: bool,
    bisect: bool,
    tolerance: float | None,
    as_json: bool,
    no_cache: bool,
    inputs: tuple[str, ...],
    seed: int,
    sizes: tuple[str, ...],
    **asked: Unpack[Compiling],
) -> None:  # fmt: skip
    """See HELP."""
    environment: Environment = context.obj
    options = options_of(environment, asked)
    source = _source(model, against, layers or bisect)
    with progress_of() as progress:
        config = build_config_of(environment, no_cache, progress)
        graph = import_for(target_of(options), source, options)
        given, _ = read_feeds(inputs, {name: graph.types[name] for name in graph.inputs})
        wanted = sizes_of(sizes)
        request = Request(source, options, config, given, wanted, seed, tolerance)
        if source is not model:
            artifact = read_artifact(model)
            fixed = fixed_sizes(artifact.manifest, graph)
            request = replace(request, artifact=artifact, sizes=fixed | wanted)
        result = verified(request, layers, bisect)
    if as_json:
        print_json({"agrees": result.agrees, **asdict(result)})
    else:
        _show(result, layers, bisect)
    context.exit(0 if result.agrees else 1)


def _source(model: Path, against: Path | None, compiling: bool) -> Path:
    """The ONNX model that is right by definition."""
    if model.suffix != ".mcc":
        if against is not None:
            hint = "leave it out: the model is compiled, and onnxruntime is asked where it is there"
            raise ModelError("--against is for a compiled model (.mcc)", (str(model),), hint)
        return model
    if against is None:
        hint = f"modelcc verify {model} --against MODEL.onnx"
        problem = "a compiled model does not carry the one it was made from"
        raise ModelError(problem, (str(model),), hint)
    if compiling:
        hint = f"modelcc verify {against} --layers, or --bisect"
        raise ModelError("--layers and --bisect compile the model again", (str(model),), hint)
    return against


def _show(result: Verification, layers: bool, bisect: bool) -> None:
    console = output_console()
    if result.precision:
        console.print(result.precision, markup=False)
    console.print(difference_table("against the reference interpreter", result.reference))
    if result.peer:
        console.print(difference_table("against onnxruntime", result.peer))
    if layers:
        console.print(_layer_text(result), markup=False)
    if bisect:
        console.print(_culprit_text(result), markup=False)
    console.print("all outputs agree" if result.agrees else "[bold red]outputs differ[/]")


def difference_table(title: str, differences: Sequence[Difference]) -> Table:
    """One row for each compared value."""
    names = ("value", "", "error / greatest", "accepted", "worst at")
    table = Table(*names, title=title, title_justify="left")
    for difference in differences:
        verdict = Text("agrees", "green") if difference.agrees else Text("differs", "bold red")
        worst = difference.problem
        if not worst and difference.error:
            where = list(difference.at)
            worst = f"{where}: {difference.got:.7g} for {difference.expected:.7g}"
        cells = (f"{difference.relative:.2e}", f"{difference.tolerance:.0e}", worst)
        table.add_row(Text(difference.name), verdict, *(Text(cell) for cell in cells))
    return table


def _layer_text(result: Verification) -> str:
    layer = result.layer
    if layer is None:
        return (
            "with every result kept, no node differs: a fault must be in joining nodes; "
            "try --bisect"
            if not result.agrees
            else "no node differs"
        )
    return f"first node that differs: {', '.join(layer.place)} ({layer.op})\n  {layer.difference}"


def _culprit_text(result: Verification) -> str:
    culprit = result.culprit
    if culprit is None:
        kept = "by the interpreters, every stage keeps the result"
        return kept if result.agrees else f"{kept}: a fault must be in code generation"
    rewrite = f", rewrite {culprit.rewrite}" if culprit.rewrite is not None else ""
    wrong = "\n".join(f"  {d}" for d in culprit.differences if not d.agrees)
    return f"first stage that changes the result: {culprit.stage}{rewrite}\n{wrong}"
