"""Chains of functions of bytes as tables: the same for all bytes, and only where there is one."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import F32, I8, U8, DType, TensorType
from modelcc.ops.arithmetic import Add, Cast, Mul
from modelcc.ops.gather import Gather
from modelcc.ops.transcendental import Tanh
from modelcc.passes.graph.tabulate_bytes import TabulateBytes


def chain(dtype: DType, other: bool) -> Graph:
    """``x tanh(x)`` of bytes, times a float input if ``other``."""
    b = GraphBuilder("net")
    x = b.emit(Cast(F32), b.input("x", TensorType((1, 256), dtype)))
    small = b.emit(Mul(), x, b.constant(np.array([[0.05]], np.float32)))
    y = b.emit(Mul(), small, b.emit(Tanh(), small))
    scale = b.input("s", TensorType((1, 256), F32)) if other else b.constant(8.0)
    y = b.emit(Cast(dtype), b.emit(Mul(), y, scale))
    wide = b.emit(Add(), b.emit(Cast(F32), y), b.constant(1.0))
    return b.build([b.emit(Cast(dtype), wide)])


@pytest.mark.parametrize("dtype", [I8, U8])
def test_all_bytes_are_as_before(dtype: DType) -> None:
    graph = chain(dtype, other=False)
    table = TabulateBytes()(graph)
    ops = [type(node.op) for node in table.nodes]
    assert ops.count(Gather) == 1 and len(ops) == (3 if dtype == I8 else 2)
    assert sum(constant.nbytes for constant in table.constants.values()) <= 256 + 4
    x = np.arange(256).astype(np.uint8).view(dtype.numpy)[None]
    (got,), (wanted,) = (interpret(g, {"x": x}).values() for g in (table, graph))
    np.testing.assert_array_equal(got, wanted)


def test_what_hangs_on_more_is_left() -> None:
    graph = chain(I8, other=True)
    assert not any(isinstance(node.op, Gather) for node in TabulateBytes()(graph).nodes)
