"""``python -m conformance.onnx_emission [MODEL.onnx …]``: ONNX of modelcc, run by onnxruntime.

Without models: every op on its samples, with extents as numbers and, where it has any, by name.
What is written must pass ONNX's checker, run and agree with the interpreter.  What onnxruntime has
no kernel for is run by ONNX's own reference evaluator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from conformance.sample_graphs import cases, sample_graph
from modelcc.driver import import_model
from modelcc.emit.emission import simplified
from modelcc.exporters.onnx import export_onnx
from modelcc.feeds.random import index_limits, nominal_sizes, random_feeds
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.op import Op, Sample
from modelcc.ir.types import Array, dtype_of
from modelcc.ops.samples import sizes
from modelcc.options import Options

_STATE: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")
NO_KERNEL = (_STATE.NotImplemented, _STATE.InvalidGraph)
"""Raised by onnxruntime if it lacks a kernel for an element type."""


def run_model(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """Results of onnxruntime, without its optimisations."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [np.asarray(y) for y in session.run(None, dict(feeds))]


def difference(found: Array, wanted: Array) -> str:
    """How a result differs from the expected one; empty if it does not."""
    if wanted.dtype.itemsize == found.dtype.itemsize == 1 and wanted.dtype.kind == "V":
        found = found.view(wanted.dtype)  # onnxruntime returns 8-bit floats as bytes
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{list(found.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if not dtype_of(wanted).is_float:
        return "" if np.array_equal(found, wanted) else f"{found} for {wanted}"
    tolerance = {8: 1e-10, 4: 1e-5}.get(wanted.dtype.itemsize, 2e-2)
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    most = float(np.max(np.abs(b), initial=1, where=np.isfinite(b)))
    if np.allclose(a, b, rtol=tolerance, atol=tolerance * most, equal_nan=True):
        return ""
    return f"{found.reshape(-1)[:6]} for {wanted.reshape(-1)[:6]}"


def outcome(op: Op, sample: Sample, named: bool) -> tuple[str, str]:
    """``ok``, ``judged`` by ONNX's evaluator, ``no kernel``, ``refused`` or ``wrong``, and why."""
    graph, feeds = sample_graph(op, sample)
    if not named:
        known = sizes(op, sample).items()
        graph = graph.substitute({k: v for k, v in known if k not in op.binds})
    try:
        model = export_onnx(graph)
    except ModelError as error:
        return "refused", str(error).splitlines()[-1]
    onnx.checker.check_model(model, full_check=True)
    kind, found = _found(model, {name: feeds[name] for name in graph.inputs})
    if found is None:
        return kind, ""
    wanted = interpret(graph, feeds)
    pairs = zip(found, (wanted[name] for name in graph.outputs), strict=True)
    reason = next(filter(None, (difference(a, b) for a, b in pairs)), "")
    return ("wrong" if reason else kind), reason


def _found(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> tuple[str, list[Array] | None]:
    try:
        return "ok", run_model(model, feeds)
    except NO_KERNEL:
        pass
    except RuntimeError as error:
        if "Unsupported" not in str(error) and "type" not in str(error):
            raise
    try:
        with np.errstate(all="ignore"):
            return "judged", [
                np.asarray(y) for y in ReferenceEvaluator(model).run(None, dict(feeds))
            ]
    except Exception:
        return "no kernel", None


def _run_ops(only: str) -> None:
    counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for op, number, named in cases():
        name = type(op).__name__
        if only and name != only:
            continue
        try:
            kind, reason = outcome(op, type(op).samples[number], named)
        except Exception as error:
            kind, reason = "error", f"{type(error).__name__}: {error}"
        counts[named][kind] += 1
        if kind != "ok":
            click.echo(f"{name} {number}{' by name' if named else ''}: {kind}: {reason[:400]}")
    click.echo(f"numbers {dict(counts[False])}, names {dict(counts[True])}")


def difference_of(graph: Graph, found: Sequence[Array], feeds: Mapping[str, Array]) -> float:
    """The largest difference from the interpreter, relative to the largest element."""
    wanted = interpret(graph, feeds)
    return max(
        float(np.max(np.abs(a.astype(np.float64) - b)) / max(np.max(np.abs(b)), 1e-30))
        for a, b in zip(found, (wanted[name] for name in graph.outputs), strict=True)
    )


def _run_model(path: Path) -> None:
    start = perf_counter()
    graph = simplified(import_model(path, Options()))
    model: Any = export_onnx(graph)
    written = perf_counter() - start
    onnx.checker.check_model(model, full_check=True)
    types = {name: graph.types[name] for name in graph.inputs}
    known = nominal_sizes(graph.dims, {}, [t.shape for t in types.values()])
    feeds = random_feeds(types, known, limits=index_limits(graph))
    apart = difference_of(graph, run_model(model, feeds), feeds)
    size = len(model.SerializeToString()) / 1e6
    click.echo(f"{path.stem}: {len(model.graph.node)} nodes, {size:.1f} MB in {written:.1f} s, "
               f"apart by {apart:.1e}")  # fmt: skip


@click.command()
@click.argument("models", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--only", default="", help="The op to run.")
def main(models: tuple[Path, ...], only: str) -> None:
    """Write and run MODELS, or all ops."""
    for model in models:
        _run_model(model)
    if not models:
        _run_ops(only)


if __name__ == "__main__":
    main()
