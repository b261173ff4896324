"""Layouts where the example of the pass does not reach."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.types import F32, Layout, TensorType, blocked, row_major
from modelcc.ops.activation import Relu
from modelcc.ops.conv import Conv
from modelcc.ops.padding import Pad
from modelcc.ops.shape import Reshape
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.targets.cpu.passes.assign_layouts import AssignLayouts


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


def convolved(channels: int, size: int, kernel: int, pad: int, before: bool) -> TensorProgram:
    """A convolution of x, or of relu(x)."""
    build = GraphBuilder()
    x = build.input("x", TensorType((1, channels, size, size), F32))
    source = build.emit(Relu(), x, name="r") if before else x
    w = build.constant(np.ones((16, channels, kernel, kernel), np.float32))
    y = build.emit(Conv((1, 1), (pad, pad), (pad, pad), (1, 1), 1), source, w)
    return AssignLayouts()(lower_graph(build.build([y])))


def test_inputs_of_many_channels_are_copied_in_blocks() -> None:
    program = convolved(32, 8, 3, 1, before=False)
    border = ((0, 0), (0, 0), (1, 1), (1, 1))
    assert program.types["x.padded"].layout == Layout(blocked(4, 1, 16).parts, border)


def test_what_is_made_for_a_depthwise_convolution_is_made_in_blocks() -> None:
    build = GraphBuilder()
    source = build.emit(Relu(), build.input("x", TensorType((1, 32, 8, 8), F32)), name="r")
    w = build.constant(np.ones((32, 1, 3, 3), np.float32))
    y = build.emit(Conv((1, 1), (1, 1), (1, 1), (1, 1), 32), source, w)
    program = AssignLayouts()(lower_graph(build.build([y])))
    border = ((0, 0), (0, 0), (1, 1), (1, 1))
    assert program.types["r"].layout == Layout(blocked(4, 1, 16).parts, border)


def test_inputs_of_few_channels_stay_in_order() -> None:
    program = convolved(3, 8, 3, 1, before=False)
    border = ((0, 0), (0, 0), (1, 1), (1, 1))
    assert program.types["x.padded"].layout == Layout(row_major(4).parts, border)


def test_row_major_values_get_borders_too() -> None:
    program = convolved(3, 8, 3, 1, before=True)
    assert program.types["r"].physical.halo == ((0, 0), (0, 0), (1, 1), (1, 1))


def test_borders_much_larger_than_the_tensor_are_left_to_guards() -> None:
    assert convolved(3, 16, 13, 6, before=True).types["r"].layout is not None
    assert convolved(3, 4, 13, 6, before=True).types["r"].layout is None


def reshaped(outputs: int, viewed: bool) -> tuple[TensorProgram, TensorProgram]:
    """Before and after: relu(x) is folded into an image, which is convolved, and maybe a result."""
    build = GraphBuilder()
    x = build.input("x", TensorType((1, 8, 64), F32))
    image = build.emit(Reshape((1, 8, 8, 8)), build.emit(Relu(), x), name="image")
    w = build.constant(np.random.default_rng(0).standard_normal((outputs, 8, 3, 3), np.float32))
    y = build.emit(Conv((1, 1), (1, 1), (1, 1), (1, 1), 1), image, w)
    program = lower_graph(build.build([y, image] if viewed else [y]))
    return program, AssignLayouts()(program)


@pytest.mark.parametrize("outputs", [3, 32])
def test_views_that_windows_slide_over_get_a_border(outputs: int) -> None:
    before, after = reshaped(outputs, viewed=False)
    layout = after.types["image"].layout
    assert layout is not None and layout.halo == ((0, 0), (0, 0), (1, 1), (1, 1))
    x = np.random.default_rng(1).standard_normal((1, 8, 64), np.float32)
    wanted, found = (run_program(program, {"x": x}, {}) for program in (before, after))
    for name in before.outputs:
        np.testing.assert_array_equal(found[name], wanted[name])


def test_views_that_are_results_stay_in_order() -> None:
    assert reshaped(32, viewed=True)[1].types["image"].layout is None


@pytest.mark.parametrize(("depth", "border"), [(2, 0), (4, 0), (16, 1)])
def test_planes_of_which_much_is_border_are_left_to_guards(depth: int, border: int) -> None:
    build = GraphBuilder()
    x = build.input("x", TensorType((1, 16, depth, 6, 6), F32))
    weights = np.random.default_rng(0).standard_normal((16, 16, 3, 3, 3), np.float32)
    y = build.emit(Relu(), x, name="y")
    ones = (1, 1, 1)
    z = build.emit(Conv(ones, ones, ones, ones, 1), y, build.constant(weights))
    before = lower_graph(build.build([z]))
    after = AssignLayouts()(before)
    layout = after.types["y"].layout
    sides = (border, border), (1, 1), (1, 1)
    assert layout is not None and layout.halo == ((0, 0), (0, 0), *sides)


def test_results_that_windows_read_have_a_border_in_a_copy() -> None:
    build = GraphBuilder()
    x = build.input("x", TensorType((2, 16, 6, 6), F32))
    w = build.input("w", TensorType((16, 4, 3, 3), F32))
    r = build.emit(Relu(), x, name="r")
    y = build.emit(Conv((1, 1), (1, 1), (1, 1), (1, 1), 4), r, w, name="y")
    before = lower_graph(build.build([y, r]))
    program = AssignLayouts()(before)
    assert program.types["r"].layout is None
    border = ((0, 0), (0, 0), (1, 1), (1, 1))
    assert program.types["r.padded"].layout == Layout(row_major(4).parts, border)
    rng = np.random.default_rng(0)
    data = {n: rng.normal(size=before.types[n].static_shape()).astype("f4") for n in ("x", "w")}
    wanted, actual = (run_program(p, data, {}) for p in (before, program))
    assert all(np.allclose(actual[n], wanted[n]) for n in before.outputs)
