"""``modelcc inspect``: what a model's file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from modelcc.cli.console import print_json, print_pairs
from modelcc.cli.parameters import MODEL
from modelcc.cli.verbosity import verbosity_options
from modelcc.report.formats import byte_text
from modelcc.report.model_facts import facts_of

HELP = """Show what MODEL (.onnx or a compiled .mcc) holds: inputs, outputs, operators, weights;
of a .mcc the machine and the digests. Nothing is compiled, and no code of the file is run.

\b
  modelcc inspect model.onnx
  modelcc inspect model.mcc
  modelcc inspect model.onnx --json
"""

_SHOWN = 12
"""Operators and features in the summary; --json has all."""


@click.command("inspect", help=HELP)
@click.argument("model", type=MODEL)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@verbosity_options
def inspect(model: Path, as_json: bool) -> None:
    """See HELP."""
    facts = facts_of(model)
    if as_json:
        print_json(facts)
        return
    print_pairs(_rows(facts))


def _rows(facts: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    rows = [("model", facts["name"]), ("file", f"{facts['file']} ({byte_text(facts['bytes'])})")]
    rows += _artifact_rows(facts) if facts["kind"] == "artifact" else _onnx_rows(facts)
    for side in ("inputs", "outputs", "states"):
        rows += [(side[:-1], f"{n}: {kind}") for n, kind in facts.get(side, {}).items()]
    weights = facts["weights"]
    types = ", ".join(f"{n} {byte_text(size)}" for n, size in weights["by_type"].items())
    rows.append(("weights", byte_text(weights["bytes"]) + (f" ({types})" if types else "")))
    rows += [
        ("", f"{byte_text(w['bytes'])}  {w['name']}: {w['type']}") for w in weights["largest"][:5]
    ]
    return [(name, str(text)) for name, text in rows if text or not name]


def _onnx_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    opsets = ", ".join(f"{domain} {version}" for domain, version in facts["opsets"].items())
    within = f", {facts['subgraphs']} subgraphs" if facts["subgraphs"] else ""
    within += f", {facts['functions']} functions" if facts["functions"] else ""
    return [
        ("format", f"ONNX, IR version {facts['ir_version']}"),
        ("producer", facts["producer"]),
        ("operator sets", opsets),
        *((f"metadata {key}", value) for key, value in facts["metadata"].items()),
        ("dimensions", ", ".join(facts["dims"])),
        ("nodes", f"{facts['nodes']}{within}"),
        ("operators", _listed([f"{n} {op}" for op, n in facts["ops"].items()])),
        ("external data", ", ".join(facts["external"])),
    ]


def _artifact_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    machine, arena = facts["machine"], facts["arena"]
    features = [name for name in machine["features"] if name.startswith("+")]
    sizes = (f"{n} {low}..{'' if high is None else high}"
             for n, (low, high) in facts["dims"].items())  # fmt: skip
    libraries = (f"{name} {found['version']} ({' or '.join(found['files'])})"
                 for name, found in facts["libraries"].items())  # fmt: skip
    return [
        ("format", "artifact of modelcc"),
        ("sha256", facts["sha256"]),
        ("machine", f"{machine['triple']} {machine['cpu']}"),
        ("features", _listed(features)),
        ("made by", ", ".join(f"{n} {v}" for n, v in facts["versions"].items())),
        ("libraries", ", ".join(libraries)),
        ("dimensions", ", ".join(sizes)),
        ("activations", byte_text(arena) if isinstance(arena, int) else f"{arena} bytes"),
        ("constraints", "; ".join(facts["checks"])),
        ("parts", ", ".join(f"{m['name']} {byte_text(m['bytes'])}" for m in facts["members"])),
    ]


def _listed(items: Sequence[str]) -> str:
    more = len(items) - _SHOWN
    return ", ".join(items[:_SHOWN]) + (f" and {more} more (--json)" if more > 0 else "")
