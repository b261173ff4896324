"""Pools of any pads as ONNX, which has pads from 0 to less than the kernel alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest

from conformance.onnx_emission import difference, run_model
from modelcc.exporters.onnx import export_onnx
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.types import F32, TensorType
from modelcc.ops.lp_pool import LpPool
from modelcc.ops.pool import AveragePool, MaxPool, Pool

POOLS: dict[str, tuple[type[Pool], dict[str, Any]]] = {
    "max": (MaxPool, {}),
    "mean": (AveragePool, {}),
    "mean with pads": (AveragePool, {"count_include_pad": True}),
    "norm": (LpPool, {"p": 2}),
}
PADS = ((0, 0), (1, 1), (0, 2), (2, 2), (-1, 0), (0, -1), (-1, -2), (3, 1), (0, 4))
WINDOWS = ((1, 3, 1), (2, 2, 1), (2, 3, 2), (3, 2, 1), (3, 1, 2))
SIZE = 9


def pools(name: str, ceil_mode: bool) -> Iterator[Pool]:
    kind, more = POOLS[name]
    for kernel, stride, dilation in WINDOWS:
        for before, after in PADS:
            place = ((kernel,), (stride,), (before,), (after,), (dilation,))
            yield kind(*place, ceil_mode, **more)


def graph_of(op: Pool, size: Index) -> Graph:
    build = GraphBuilder("pool", {"t": Range(1, None)} if isinstance(size, Sym) else {})
    x = build.input("x", TensorType((2, 1, size), F32))
    return build.build([build.emit(op, x)])


@pytest.mark.parametrize("ceil_mode", [False, True], ids=["", "ceil"])
@pytest.mark.parametrize("size", [SIZE, Sym("t")], ids=["numbers", "names"])
@pytest.mark.parametrize("name", POOLS)
def test_onnxruntime_pools_alike(name: str, size: Index, ceil_mode: bool) -> None:
    """But for windows of pads alone, whose greatest element onnxruntime says is -3.4e38."""
    x = {"x": np.random.default_rng(0).standard_normal((2, 1, SIZE)).astype(np.float32)}
    for op in pools(name, ceil_mode):
        graph = graph_of(op, size)
        (wanted,) = interpret(graph, x).values()
        model = export_onnx(graph)
        onnx.checker.check_model(model, full_check=True)
        (found,) = run_model(model, x)
        empty = np.isneginf(wanted)
        assert not difference(np.where(empty, wanted, found), wanted), op
