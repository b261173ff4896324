"""``python -m conformance.stablehlo_emission [MODEL.onnx …]``: StableHLO of modelcc, run by jax.

Without models: every op on its samples, with extents as numbers and, where it has any, by name.
What is written must pass the verifier of jaxlib, run on its CPU and agree with the interpreter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import click
import numpy as np

from conformance.jax_primitives import difference
from conformance.sample_graphs import cases, sample_graph
from modelcc.driver import import_model
from modelcc.emit.emission import stablehlo_text
from modelcc.exporters.stablehlo import export_stablehlo
from modelcc.feeds.random import index_limits, nominal_sizes, random_feeds
from modelcc.ir.errors import ModelError
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.op import Op, Sample
from modelcc.ir.types import Array
from modelcc.ops.samples import sizes
from modelcc.options import Options

REFINED = (
    "builtin.module(stablehlo-refine-arguments{{types={}}},stablehlo-refine-shapes,"
    "func.func(stablehlo-canonicalize-dynamism))"
)


def run_text(text: str, args: Sequence[Array]) -> list[Array]:
    """Results of ``main`` on jax's CPU backend; jax's own exception if it fails."""
    jax: Any = import_module("jax")
    ir: Any = import_module("jaxlib.mlir.ir")
    mlir: Any = import_module("jax.interpreters.mlir")
    extension: Any = import_module("jaxlib._jax")
    backend: Any = import_module("jax.extend.backend").get_backend("cpu")
    device = jax.devices("cpu")[0]
    with mlir.make_ir_context() as context, ir.Location.unknown(context):
        module = ir.Module.parse(text)
        module.operation.verify()
        if "?" in text:
            _refine(module, args)
        devices = extension.DeviceList((device,))
        loaded = backend.compile_and_load(module, devices, extension.CompileOptions())
    jax.config.update("jax_enable_x64", True)
    found = loaded.execute_sharded([jax.device_put(a, device) for a in args])
    return [np.asarray(result[0]) for result in found.disassemble_into_single_device_arrays()]


def _refine(module: Any, args: Sequence[Array]) -> None:
    """Static shapes in place of named extents, as in jax for exported functions."""
    ir: Any = import_module("jaxlib.mlir.ir")
    mlir: Any = import_module("jax.interpreters.mlir")
    import_module("jaxlib.mlir.dialects.stablehlo").register_stablehlo_passes()
    types = [ir.RankedTensorType.get(a.shape, mlir.dtype_to_ir_type(a.dtype)) for a in args]
    passes = REFINED.format(",".join(map(str, types)))
    manager: Any = import_module("jaxlib.mlir.passmanager").PassManager
    manager.parse(passes).run(module.operation)


def outcome(op: Op, sample: Sample, named: bool) -> tuple[str, str]:
    """``ok``, ``refused``, ``wrong`` or ``error``, and why."""
    graph, feeds = sample_graph(op, sample)
    if not named:
        graph = graph.substitute(sizes(op, sample))
    try:
        text = export_stablehlo(graph)
    except ModelError as error:
        return "refused", str(error).splitlines()[-1]
    wanted = interpret(graph, feeds)
    try:
        found = run_text(text, [feeds[name] for name in graph.inputs])
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"
    pairs = zip(found, (wanted[name] for name in graph.outputs), strict=True)
    reason = next(filter(None, (difference(a, b) for a, b in pairs)), "")
    return ("wrong" if reason else "ok"), reason


def _run_ops(only: str) -> None:
    counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for op, number, named in cases():
        name = type(op).__name__
        if only and name != only:
            continue
        kind, reason = outcome(op, type(op).samples[number], named)
        counts[named][kind] += 1
        if kind != "ok":
            click.echo(f"{name} {number}{' by name' if named else ''}: {kind}: {reason[:300]}")
    click.echo(f"numbers {dict(counts[False])}, names {dict(counts[True])}")


def _run_model(path: Path) -> None:
    """Timings and the largest difference from the interpreter, relative to the largest element."""
    start = perf_counter()
    graph = import_model(path, Options())
    text = stablehlo_text(graph)
    written = perf_counter() - start
    types = {name: graph.types[name] for name in graph.inputs}
    sizes = nominal_sizes(graph.dims, {}, [t.shape for t in types.values()])
    feeds = random_feeds(types, sizes, limits=index_limits(graph))
    wanted = interpret(graph, feeds)
    found = run_text(text, [feeds[name] for name in graph.inputs])
    apart = max(
        float(np.max(np.abs(a.astype(np.float64) - b)) / max(np.max(np.abs(b)), 1e-30))
        for a, b in zip(found, (wanted[name] for name in graph.outputs), strict=True)
    )
    click.echo(f"{path.stem}: {len(text) / 1e6:.1f} MB in {written:.1f} s, apart by {apart:.1e}")


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
