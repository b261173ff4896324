"""Writes the pages that follow from the sources: ``python -m docs.generate``.

``ops.md`` lists every op of the built-in dialect and every ONNX operator that is imported,
``targets.md`` the targets, ``commands.md`` what each command says of itself.  A test fails when a
page is out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, fields
from itertools import chain, groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

from click import Context, Group
from click.testing import CliRunner

from modelcc.cli.main import COMMANDS, cli
from modelcc.frontends.kit.layers import LAYERS
from modelcc.frontends.onnx.support import operators
from modelcc.ir.op import Op
from modelcc.ops.accepted import accepted, summary
from modelcc.ops.catalog import MCC
from modelcc.targets.base import TargetOptions
from modelcc.targets.registry import BUILT_IN, make_target

FOLDER = Path(__file__).parent
NOTE = "<!-- Made by `python -m docs.generate`; change the sources instead. -->"
WIDTH = 96
FACETS = ("compute", "algorithm", "decompose", "grad", "quantize")


def _op_lines() -> Iterator[str]:
    yield from ("# Ops", "", NOTE, "")
    yield (
        f"The built-in dialect `{MCC.name}` has {len(MCC.ops)} ops.  All have a shape rule and a "
        "NumPy reference.  *compute*: lowered to the tensor level, so every target has code for "
        "it; *algorithm*: the same, as a loop function of its own; *decompose*: a composite "
        "that is also given by simpler ops; *grad*: a gradient of its own; *quantize*: "
        "integers of few bits where a float model is quantised; *elements*: the types of the "
        "first operand."
    )
    for family, ops in groupby(MCC.ops, key=_family):
        yield from (
            "",
            f"## {family}",
            "",
            "| op | compute | algorithm | decompose | grad | quantize | elements | meaning |",
        )
        yield "|---|:-:|:-:|:-:|:-:|:-:|---|---|"
        for op in ops:
            marks = " | ".join("✓" if op.has(facet) else " " for facet in FACETS)
            elements = summary(accepted(op))
            yield f"| `{_signature(op)}` | {marks} | {elements} | {_first_line(op)} |"


def _family(op: type[Op]) -> str:
    return op.__module__.rsplit(".", 1)[-1].replace("_", " ")


def _signature(op: type[Op]) -> str:
    attributes = [f.name + _default(f) for f in fields(op)]  # type: ignore[arg-type]
    return op.__name__ + (f"({', '.join(attributes)})" if attributes else "")


def _default(field: Field[Any]) -> str:
    if field.default is MISSING:
        return ""
    value = field.default
    return f"={value}" if not isinstance(value, str) else f'="{value}"'


def _first_line(op: type[Op]) -> str:
    text = (op.__doc__ or "").split("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


def _onnx_lines() -> Iterator[str]:
    found = operators()
    taken = sum(bool(operator.how) for operator in found)
    yield from ("", "## ONNX operators", "")
    yield (
        f"{taken} of {len(found)} operators are imported, from operator set 1 on.  *direct*: as "
        "ops of the dialect; *definition*: by the function that the standard defines them with. "
        " Their element types are those of the ops above; complex numbers have no code."
    )
    yield from ("", "| operator | changed in operator sets | imported |", "|---|---|---|")
    for operator in (o for o in found if not o.operands):
        versions = ", ".join(map(str, operator.versions))
        yield f"| `{operator.qualified}` | {versions} | {operator.how or 'no'} |"
    yield (
        "\nOnnxruntime's own are imported directly, with these operands: `?` may be absent, `*` is "
        "all that are left, `!` is refused; extents of one name are alike in all of them."
    )
    yield from ("", "| operator | operands |", "|---|---|")
    yield from (f"| `{o.qualified}` | `{o.operands}` |" for o in found if o.operands)


def _layer_lines() -> Iterator[str]:
    yield from ("", "## Layers in ONNX, ATen and StableHLO", "")
    yield (
        "What has no operator of its own somewhere is written as arithmetic there, and recognised. "
        " `modelcc ops --frontends` prints this table."
    )
    yield from ("", "| layer | ONNX | ATen | StableHLO |", "|---|---|---|---|")
    for layer in LAYERS:
        columns = (
            ", ".join(f"`{n}`" for n in x) for x in (layer.onnx, layer.aten, layer.stablehlo)
        )
        yield f"| {layer.name} | {' | '.join(columns)} |"


def _command_lines() -> Iterator[str]:
    yield from ("# Commands", "", NOTE)
    for names in ((), *_commands()):
        arguments = [*names, "--help"]
        result = CliRunner().invoke(cli, arguments, prog_name="modelcc", terminal_width=WIDTH)
        title = " ".join(("##", "modelcc", *names))
        yield from ("", title, "", "```", result.output.rstrip(), "```")


def _commands() -> Iterator[tuple[str, ...]]:
    """Each command, and after a group those in it."""
    for name in COMMANDS:
        yield (name,)
        command = cli.get_command(Context(cli), name)
        if isinstance(command, Group):
            yield from ((name, inner) for inner in command.commands)


def _target_lines() -> Iterator[str]:
    yield from ("# Targets", "", NOTE, "", "| target | `--emit` forms |", "|---|---|")
    for name in BUILT_IN:
        target = make_target(name, TargetOptions(cpu="x86-64-v3"))
        yield f"| `{target.name}` | {', '.join(f'`{form}`' for form in target.forms)} |"
    yield from ("", "Other packages add targets by the entry point group `modelcc.targets`.")


PAGES: Mapping[str, Callable[[], Iterator[str]]] = MappingProxyType(
    {
        "ops.md": lambda: chain(_op_lines(), _layer_lines(), _onnx_lines()),
        "commands.md": _command_lines,
        "targets.md": _target_lines,
    }
)
"""Lines of each generated page, by file name."""


def page(name: str) -> str:
    """Text of the generated page ``name``."""
    return "".join(f"{line}\n" for line in PAGES[name]())


if __name__ == "__main__":
    for name in PAGES:
        (FOLDER / name).write_text(page(name), "utf-8")
        print(FOLDER / name)
