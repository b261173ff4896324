"""Layouts where the example of the pass does not reach."""

from __future__ import annotations

import numpy as np

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.types import F32, Layout, TensorType, blocked
from modelcc.ops.activation import Relu
from modelcc.ops.conv import Conv
from modelcc.ops.padding import Pad
from modelcc.passes.tensor.assign_layouts import AssignLayouts
from modelcc.passes.tensor.from_graph import lower_graph


def laid_out(before: tuple[int, ...], after: tuple[int, ...]) -> TensorProgram:
    """relu(x) is padded, after a pointwise convolution."""
    build = GraphBuilder()
    x = build.input("x", TensorType((1, 16, 4, 4), F32))
    w = build.constant(np.ones((16, 16, 1, 1), np.float32))
    y = build.emit(Conv((1, 1), (0, 0), (0, 0), (1, 1), 1), x, w, name="y")
    z = build.emit(Pad(before, after, "constant", 0.0), y)
    return AssignLayouts()(lower_graph(build.build([build.emit(Relu(), z)])))


def test_padding_becomes_a_border() -> None:
    program = laid_out((0, 0, 1, 0), (0, 0, 2, 3))
    parts = blocked(4, 1, 16).parts
    assert program.types["y"].layout == Layout(parts, ((0, 0), (0, 0), (1, 2), (0, 3)))


def test_the_blocked_dimension_has_no_border() -> None:
    program = laid_out((0, 1, 1, 0), (0, 0, 0, 0))
    layout = program.types["y"].layout
    assert layout is not None and layout.halo == ((0, 0), (0, 0), (1, 0), (0, 0))


def test_inputs_are_not_copied_for_readers_that_do_not_reduce() -> None:
    build = GraphBuilder()
    x = build.input("x", TensorType((1, 16, 4, 4), F32))
    program = lower_graph(build.build([build.emit(Pad((0, 0, 1, 1), (0, 0, 1, 1)), x)]))
    assert AssignLayouts()(program) == program
