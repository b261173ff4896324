"""Taps that read nothing but padding are left out, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.index import Index, Sym
from modelcc.ir.types import F32, TensorType
from modelcc.ops.conv import Conv
from modelcc.passes.graph.trim_windows import TrimWindows
from tests.passes.graph.examples import assert_same_meaning

PAIR = tuple[int, int]


def trimmed_kernel(
    sizes: tuple[Index, Index],
    kernel: PAIR,
    strides: PAIR,
    before: PAIR,
    after: PAIR,
    dilations: PAIR,
) -> tuple[int, ...]:
    """The window that is left; the graph means the same."""
    rng = np.random.default_rng(0)
    make = GraphBuilder()
    x = make.input("x", TensorType((1, 4, *sizes), F32))
    w = make.constant(rng.standard_normal((6, 2, *kernel)).astype(np.float32))
    b = make.constant(rng.standard_normal(6).astype(np.float32))
    graph = make.build([make.emit(Conv(strides, before, after, dilations, 2), x, w, b)])
    result = TrimWindows()(graph)
    assert_same_meaning(graph, result)
    assert TrimWindows()(result) == result
    (node,) = result.nodes
    return result.constants[node.inputs[1]].data.shape[2:]


@pytest.mark.parametrize(
    ("sizes", "kernel", "strides", "before", "after", "dilations", "left"),
    [
        ((1, 1), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1)),
        ((2, 1), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (3, 1)),
        ((1, 3), (5, 5), (1, 1), (2, 2), (2, 2), (1, 1), (1, 5)),
        ((1, 2), (4, 3), (1, 1), (2, 1), (1, 1), (1, 1), (1, 3)),
        ((6, 7), (3, 3), (1, 1), (6, 6), (6, 6), (6, 6), (1, 3)),
        ((6, 9), (3, 3), (1, 2), (9, 3), (9, 3), (9, 3), (1, 3)),
        ((2, 8), (3, 3), (2, 2), (1, 1), (0, 0), (1, 1), (2, 3)),
        ((1, 1), (2, 1), (1, 1), (0, 0), (2, 0), (1, 1), (1, 1)),
        ((5, 5), (3, 3), (1, 1), (0, 0), (0, 0), (1, 1), (3, 3)),
        ((Sym("h"), 1), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (3, 1)),
    ],
)
def test_taps_outside_are_left_out(
    sizes: tuple[Index, Index],
    kernel: PAIR,
    strides: PAIR,
    before: PAIR,
    after: PAIR,
    dilations: PAIR,
    left: PAIR,
) -> None:
    assert trimmed_kernel(sizes, kernel, strides, before, after, dilations) == left
