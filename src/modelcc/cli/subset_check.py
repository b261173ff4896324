"""``modelcc check`` for other people's machines and runtimes, which are tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rich.table import Table

from modelcc.cli.console import note, output_console, print_json, print_pairs
from modelcc.frontends.choice import frontend_of
from modelcc.frontends.tflite.litert import compared_by_litert
from modelcc.frontends.tflite.reading import read_model
from modelcc.frontends.tflite.writing import edited
from modelcc.ir.errors import ModelError
from modelcc.subsets.rewriting import rewritten
from modelcc.subsets.subset import Subset
from modelcc.subsets.table import SUBSETS
from modelcc.subsets.verdict import NodeVerdict, SubsetReport, check_model

LEFT_OVER = 1
_SUFFIX = ".tflite"


def check_subset(path: Path, name: str, rewrite: Path | None, as_json: bool) -> int:
    """Print which operators of a TFLite file the subset ``name`` takes; with ``rewrite``, write a
    file of which it takes more, compare its results with the model's, and print what is taken of
    that."""
    subset = SUBSETS[name]
    data = _contents(path, subset)
    model = read_model(data, path.name)
    changed = rewritten(model, subset)
    report = _with_rewrites(check_model(model, subset), changed.done)
    compared = ""
    if rewrite is not None:
        written = edited(data, model, changed.model)
        compared = compared_by_litert(data, written)
        rewrite.write_bytes(written)
        report = check_model(read_model(written, rewrite.name), subset)
    if as_json:
        print_json(_facts(report, compared))
    else:
        print_pairs(list(_rows(report, compared)))
        _print_nodes(report)
    if rewrite is not None:
        note(f"{rewrite}: {len(changed.done)} operators rewritten")
    return LEFT_OVER if report.taken < len(report.nodes) else 0


def _contents(path: Path, subset: Subset) -> bytes:
    if frontend_of(path).module != "modelcc.frontends.tflite":
        hint = f"convert the model to TFLite: {subset.name} takes nothing else"
        raise ModelError(f"{path.name} is no TFLite file ({_SUFFIX})", (), hint)
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read it: {error.strerror}", (str(path),)) from error


def _with_rewrites(report: SubsetReport, done: dict[tuple[int, int], str]) -> SubsetReport:
    nodes = (replace(n, rewrite=done.get((n.subgraph, n.index), "")) for n in report.nodes)
    return replace(report, nodes=tuple(nodes))


def _facts(report: SubsetReport, compared: str) -> dict[str, object]:
    there, all_macs = report.macs
    return {
        "model": report.model,
        "target": report.subset.name,
        "source": report.subset.source,
        "operators": len(report.nodes),
        "taken": report.taken,
        "macs": all_macs,
        "macs_taken": there,
        "partitions": report.partitions,
        **({"compared": compared} if compared else {}),
        "nodes": [_node_facts(node) for node in report.nodes],
    }


def _node_facts(node: NodeVerdict) -> dict[str, object]:
    return {
        "subgraph": node.subgraph,
        "index": node.index,
        "operator": node.operator,
        "result": node.result,
        "macs": node.macs,
        "taken": node.taken,
        "reasons": list(node.reasons),
        "changes": list(node.changes),
        "rewrite": node.rewrite,
    }


def _rows(report: SubsetReport, compared: str) -> Iterator[tuple[str, str]]:
    there, all_macs = report.macs
    yield "model", f"{report.model} on {report.subset.description}"
    yield "table", report.subset.source
    yield "operators", f"{report.taken} of {len(report.nodes)} taken{_share(report)}"
    if all_macs:
        yield "multiplications", f"{there:,} of {all_macs:,} ({100 * there / all_macs:.1f} %)"
    yield "partitions", str(report.partitions)
    left = Counter(n.operator for n in report.nodes if not n.taken and not n.behind)
    if left:
        yield "left", ", ".join(f"{count} {name}" for name, count in left.most_common())
    behind = next((n for n in report.nodes if n.behind), None)
    if behind is not None:
        count = sum(n.behind for n in report.nodes)
        yield "left with them", f"{count} from {behind.index} on, since {behind.reasons[0]}"
    if compared:
        yield "compared", compared


def _share(report: SubsetReport) -> str:
    return f" ({100 * report.taken / len(report.nodes):.1f} %)" if report.nodes else ""


def _print_nodes(report: SubsetReport) -> None:
    """The operators that are not taken: why, and what would help."""
    left = [node for node in report.nodes if not node.taken and not node.behind]
    if not left:
        return
    table = Table("operator", "result", "why not", "what helps")
    for node in left:
        helps = f"--rewrite: {node.rewrite}" if node.rewrite else "\n".join(node.changes)
        name = f"{node.index} {node.operator}"
        table.add_row(name, node.result, "\n".join(node.reasons), helps)
    output_console().print(table)
