"""Winograd convolution: the same results as the direct one, before and after scheduling."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import onnxruntime
import pytest
from kernel_runs import interpreted, native, run_scheduled
from machines import chosen_cpu, chosen_options
from onnx import TensorProto, helper, numpy_helper

import modelcc
from modelcc.driver import pipeline, target_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.tensor_interpreter import run_program
from modelcc.ir.tensor_parser import parse_tensor_program
from modelcc.ir.tensor_text import print_tensor_program
from modelcc.ir.tensor_verifier import verify_tensor_program
from modelcc.ir.types import F32, Array, Layout, TensorType, blocked
from modelcc.ops.activation import Relu
from modelcc.ops.arithmetic import Add
from modelcc.ops.conv import Conv
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.passes.tensor.winograd_transforms import transform_filter
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.passes.winograd import Winograd
from modelcc.targets.cpu.passes.winograd_cost import Choice, Shape, WinogradCost
from modelcc.targets.cpu.processors import PROCESSORS
from modelcc.targets.cpu.schedule import schedule_program


@dataclass(frozen=True)
class Always(WinogradCost):
    """One algorithm for every convolution."""

    choice: Choice = field(default=Choice(4, 1))

    def choose(self, shape: Shape, apart: bool = False) -> Choice | None:
        return self.choice


@dataclass(frozen=True)
class Case:
    """A convolution of ``[n, ci, h, w]`` to ``co`` channels, then a residual and a ReLU."""

    n: int
    ci: int
    co: int
    h: int
    w: int
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    groups: int = 1
    strides: tuple[int, int] = (1, 1)


CASES = {
    "whole tiles": (Case(1, 16, 32, 8, 12), Choice(4, 1)),
    "small tiles": (Case(1, 32, 16, 6, 4), Choice(2, 1)),
    "edges": (Case(1, 16, 16, 7, 10), Choice(4, 1)),
    "small tiles with edges": (Case(2, 16, 16, 5, 7), Choice(2, 1)),
    "less than a tile": (Case(1, 16, 16, 3, 2), Choice(4, 1)),
    "batch": (Case(3, 16, 32, 9, 8), Choice(4, 1)),
    "blocks": (Case(1, 16, 32, 16, 8), Choice(4, 4)),
    "blocks of two rows, batch": (Case(2, 32, 16, 16, 8), Choice(4, 2)),
    "blocks with an edge": (Case(2, 16, 16, 8, 10), Choice(4, 2)),
    "blocks of small tiles": (Case(1, 16, 16, 8, 6), Choice(2, 2)),
    "edges of several vectors": (Case(1, 16, 64, 3, 3), Choice(2, 1)),
    "no padding": (Case(1, 16, 16, 10, 9, (0, 0, 0, 0)), Choice(4, 1)),
    "uneven padding": (Case(1, 16, 16, 9, 8, (1, 0, 0, 2)), Choice(4, 1)),
}


@cache
def program_of(case: Case) -> TensorProgram:
    """The fused program, with channels blocked and borders as its reads want them."""
    rng = np.random.default_rng(0)
    make = GraphBuilder()
    x = make.input("x", TensorType((case.n, case.ci, case.h, case.w), F32))
    shape = (case.co, case.ci // case.groups, 3, 3)
    w = make.constant(rng.standard_normal(shape).astype(np.float32))
    b = make.constant(rng.standard_normal(case.co).astype(np.float32))
    op = Conv(case.strides, case.pads[:2], case.pads[2:], (1, 1), case.groups)
    y = make.emit(op, x, w, b)
    z = make.emit(Relu(), make.emit(Add(), y, make.input("r", make.type_of(y))))
    program = FuseKernels()(lower_graph(make.build([y, z])))
    before, after = tuple(case.pads[:2]), tuple(case.pads[2:])
    border = ((0, 0), (0, 0), (before[0], after[0]), (before[1], after[1]))
    plain = blocked(4, 1, 16)
    types = {
        name: t.with_layout(Layout(plain.parts, border) if name == "x" else plain)
        if t.rank == 4 and name not in program.constants
        else t
        for name, t in program.types.items()
    }
    return replace(program, types=types)


def inputs_of(program: TensorProgram) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    shapes = {name: program.types[name].static_shape() for name in program.inputs}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def assert_near(actual: Array, wanted: Array, bound: float = 1e-5) -> None:
    assert np.abs(actual - wanted).max() <= bound * np.abs(wanted).max()


@pytest.mark.parametrize(("case", "choice"), CASES.values(), ids=list(CASES))
def test_tensor_level_keeps_its_meaning(case: Case, choice: Choice) -> None:
    before = program_of(case)
    after = Winograd(Always(choice=choice))(before)
    verify_tensor_program(after)
    data = inputs_of(before)
    wanted, actual = (run_program(p, data, {}) for p in (before, after))
    for name in before.outputs:
        assert_near(actual[name], wanted[name])
    assert len(after.items) == (3 if choice.blocks == 1 else 1)


@pytest.mark.parametrize(("case", "choice"), CASES.values(), ids=list(CASES))
def test_schedules_keep_their_meaning(case: Case, choice: Choice) -> None:
    before = program_of(case)
    data = inputs_of(before)
    wanted = run_program(before, data, {})
    program = schedule_program(Winograd(Always(choice=choice))(before), chosen_cpu())
    for executor in (interpreted, native):
        actual = run_scheduled(program, executor(program), data, {})
        for name in before.outputs:
            assert_near(actual[name], wanted[name])


def test_text_of_rewritten_programs_parses_back() -> None:
    case, choice = CASES["blocks with an edge"]
    program = Winograd(Always(choice=choice))(program_of(case))
    text = print_tensor_program(program)
    known = {c.digest: c for c in program.constants.values()}
    assert print_tensor_program(parse_tensor_program(text, known)) == text


@pytest.mark.parametrize(
    "case",
    [
        Case(1, 32, 32, 8, 8, groups=2),
        Case(1, 16, 16, 8, 8, groups=16),
        Case(1, 16, 16, 8, 8, strides=(2, 2)),
        Case(1, 24, 16, 8, 8),
        Case(1, 16, 24, 8, 8),
    ],
    ids=str,
)
def test_others_are_left_alone(case: Case) -> None:
    program = program_of(case)
    assert Winograd(Always())(program) == program


def test_the_original_filters_are_not_kept() -> None:
    program = Winograd(Always())(program_of(CASES["whole tiles"][0]))
    shapes = [c.data.shape for c in program.constants.values() if c.data.ndim > 1]
    assert shapes == [(36, 32, 16)]
    assert all(isinstance(i, Kernel) for i in program.items)


@pytest.mark.parametrize("m", [2, 4])
def test_filters_against_the_definition(m: int) -> None:
    """A filter of one tap only is a product of rows of G."""
    w = np.zeros((1, 1, 3, 3), np.float32)
    w[0, 0, 2, 2] = 1
    corner = transform_filter(m, w).reshape(m + 2, m + 2)
    assert corner[-1, -1] == 1
    assert np.count_nonzero(corner[0]) == 0


@pytest.mark.parametrize(("m", "bound"), [(2, 2e-6), (4, 1e-5)])
@pytest.mark.parametrize("positive", [False, True], ids=["any sign", "after ReLU"])
def test_error_bound_in_the_documentation(m: int, bound: float, positive: bool) -> None:
    """Against f64, relative to the largest output, at 512 channels."""
    case = Case(1, 512, 16, 8, 8)
    program = program_of(case)
    data = inputs_of(program)
    if positive:
        data["x"] = np.maximum(data["x"], 0)
    data["r"] = np.zeros_like(data["r"])
    w = next(c.data for c in program.constants.values() if c.data.ndim == 4).astype(np.float64)
    b = next(c.data for c in program.constants.values() if c.data.ndim == 1).astype(np.float64)
    x = np.pad(data["x"].astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    exact = np.einsum("nchwij,ocij->nohw", windows, w, optimize=True) + b[:, None, None]
    scheduled = schedule_program(Winograd(Always(choice=Choice(m, 1)))(program), chosen_cpu())
    actual = run_scheduled(scheduled, native(scheduled), data, {})
    assert_near(actual[program.outputs[0]].astype(np.float64), exact, bound)


def test_cost_prefers_what_is_faster() -> None:
    cost = WinogradCost()
    large, small = cost.choose(Shape(1, 64, 64, 56, 56)), cost.choose(Shape(1, 512, 512, 7, 7))
    assert large is not None
    assert large.m == 4
    assert small is not None
    assert small.m == 2
    assert cost.choose(Shape(1, 16, 16, 2, 2)) is None


@pytest.mark.parametrize(
    ("shape", "zen5", "skylake"),
    [
        (Shape(1, 64, 64, 56, 56), Choice(4, 7), Choice(4, 7)),
        (Shape(1, 128, 128, 28, 28), Choice(4, 1), Choice(4, 1)),
        (Shape(1, 256, 256, 14, 14), Choice(4, 1), Choice(2, 1)),
        (Shape(1, 512, 512, 7, 7), Choice(2, 1), None),
        (Shape(1, 64, 64, 224, 224), Choice(4, 56), Choice(4, 56)),
        (Shape(1, 16, 16, 160, 160), Choice(4, 8), Choice(4, 8)),
    ],
)
def test_filters_that_come_slowly_are_kept_small(
    shape: Shape, zen5: Choice, skylake: Choice | None
) -> None:
    assert WinogradCost(PROCESSORS["znver5"].model).choose(shape) == zen5
    assert WinogradCost(PROCESSORS["skylake-avx512"].model).choose(shape) == skylake


def test_without_a_third_cache_filters_come_from_memory() -> None:
    near = WinogradCost(CpuModel(l3_bytes=32 << 20))
    far = WinogradCost(CpuModel(l3_bytes=0, memory_bandwidth=10.0))
    shape, choice = Shape(1, 256, 256, 14, 14), Choice(4, 1)
    assert far.winograd(shape, choice) > 1.1 * near.winograd(shape, choice)


def test_narrower_vectors_take_longer_for_arithmetic_and_transforms_alike() -> None:
    shape, choice = Shape(1, 128, 128, 56, 56), Choice(4, 1)
    wide, narrow = (WinogradCost(CpuModel(bits, l3_bandwidth=1e9)) for bits in (512, 256))
    slower = narrow.winograd(shape, choice) / wide.winograd(shape, choice)
    assert 1.8 < slower < 2
    assert narrow.direct(shape) == 2 * wide.direct(shape)


def test_images_of_unknown_number_are_apart() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    w = np.random.default_rng(0).standard_normal((64, 64, 3, 3)).astype(np.float32) / 24
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 64, 26, 28])
        for name in ("x", "y")
    )
    graph = helper.make_graph([node], "images", [x], [y], [numpy_helper.from_array(w, "w")])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = chosen_options(threads=1)
    stages = before_block(pipeline(target_of(options), options, BuildConfig()), "schedule")
    program = run_stages(stages, model)
    assert any("winograd" in i.name for i in program.items if isinstance(i, Kernel))
    compiled = modelcc.compile(model, threads=1)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for images in (1, 3):
        data = np.random.default_rng(1).standard_normal((images, 64, 26, 28)).astype(np.float32)
        wanted = np.asarray(session.run(None, {"x": data})[0])
        assert_near(np.asarray(compiled(data)), wanted)
