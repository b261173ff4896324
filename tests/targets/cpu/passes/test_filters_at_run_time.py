"""Convolutions by weights that come at run time, and their gradients, are as by onnxruntime."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest
from machines import chosen_options
from onnx import ModelProto, parser

import modelcc
from modelcc.driver import pipeline, target_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.types import F32, Array, TensorType, blocked
from modelcc.ops.conv import Conv
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.rounding import winograd_rounding
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig
from modelcc.targets.cpu.passes.assign_layouts import AssignLayouts

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
FORMS = {
    "same": ("[3, 32, 9, 12]", "[48, 32, 3, 3]", "c = Conv<pads = [1, 1, 1, 1]>(a, b)"),
    "part of a block": ("[3, 32, 9, 12]", "[24, 32, 3, 3]", "c = Conv(a, b)"),
    "strided": ("[2, 16, 9, 9]", "[32, 16, 3, 3]", "c = Conv<strides = [2, 2]>(a, b)"),
    "pointwise": ("[2, 64, 6, 7]", "[40, 64, 1, 1]", "c = Conv(a, b)"),
    "one axis": ("[2, 32, 50]", "[32, 32, 5]", "c = Conv<pads = [2, 2]>(a, b)"),
    "named": ("[n, 16, h, 8]", "[16, 16, 3, 3]", "c = Conv<pads = [1, 1, 1, 1]>(a, b)"),
    "computed": (
        "[4, 32, 16, 16]",
        "[32, 32, 3, 3]",
        "s = Abs(b) c = Conv<pads = [1, 1, 1, 1]>(a, s)",
    ),
    "transposed": (
        "[2, 32, 8, 8]",
        "[32, 48, 3, 3]",
        "c = ConvTranspose<pads = [1, 1, 1, 1]>(a, b)",
    ),
    "transposed, strided": (
        "[2, 32, 6, 6]",
        "[32, 16, 3, 3]",
        "c = ConvTranspose<strides = [2, 2], pads = [1, 1, 1, 1]>(a, b)",
    ),
    "gradient of weights": (
        "[4, 32, 9, 9]",
        "[4, 48, 9, 9]",
        "x = Transpose<perm = [1, 0, 2, 3]>(a) y = Transpose<perm = [1, 0, 2, 3]>(b)"
        " z = Conv<pads = [1, 1, 1, 1]>(x, y) c = Transpose<perm = [1, 0, 2, 3]>(z)",
    ),
    "two layers": (
        "[2, 32, 8, 8]",
        "[32, 32, 3, 3]",
        "y = Conv<pads = [1, 1, 1, 1]>(a, b) r = Relu(y) c = Conv<pads = [1, 1, 1, 1]>(r, b)",
    ),
}
SIZES = {"n": 3, "h": 11}


@cache
def model_of(form: str) -> ModelProto:
    a, b, body = FORMS[form]
    return parser.parse_model(f"{HEAD} g (float{a} a, float{b} b) => (float c) {{ {body} }}")


def inputs_of(form: str) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = [s[1:-1].split(", ") for s in FORMS[form][:2]]
    sizes = [[SIZES[e] if e in SIZES else int(e) for e in shape] for shape in shapes]
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in zip("ab", sizes, strict=True)}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("form", FORMS)
def test_results_are_those_of_onnxruntime(form: str, threads: int) -> None:
    data = inputs_of(form)
    session = onnxruntime.InferenceSession(model_of(form).SerializeToString())
    wanted: Any = session.run(None, data)[0]
    actual = modelcc.compile(model_of(form), options=chosen_options(threads=threads))(**data)
    assert np.abs(actual - wanted).max() <= 1e-5 * np.abs(wanted).max()


def kernels_of(form: str) -> list[Kernel]:
    """Of a processor on which transforms pay; whether they do is its own."""
    options = replace(chosen_options(threads=1), cpu="znver4")
    stages = before_block(pipeline(target_of(options), options, BuildConfig()), "schedule")
    program = run_stages(stages, model_of(form))
    return [item for item in program.items if isinstance(item, Kernel)]


@pytest.mark.parametrize("form", ["same", "transposed", "computed"])
def test_filters_are_transformed_once_a_call(form: str) -> None:
    assert [kernel.name for kernel in kernels_of(form)].count("winograd_filter") == 1


def test_errors_are_below_what_is_printed() -> None:
    """The filters, too, are transformed in f32: the bound is above that of constants."""
    rounding = max(kernel.rounding for kernel in kernels_of("same"))
    assert rounding > winograd_rounding(4, 32)
    data, n = inputs_of("same"), 9 * 32
    wide = {name: a.astype(np.float64) for name, a in data.items()}
    x = np.pad(wide["a"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    exact = np.einsum("nchwij,ocij->nohw", windows, wide["b"], optimize=True)
    actual = modelcc.compile(model_of("same"), options=chosen_options(threads=1))(**data)
    bound = rounding * n * n * 2.0**-24 * np.abs(wide["a"]).max() * np.abs(wide["b"]).max()
    assert np.abs(actual - exact).max() <= bound


def laid_out(outputs: int, size: int, kernel: int) -> TensorProgram:
    """A convolution of 16 channels by weights that are an input."""
    build = GraphBuilder()
    x = build.input("x", TensorType((2, 16, size, size), F32))
    w = build.input("w", TensorType((outputs, 16, kernel, kernel), F32))
    y = build.emit(Conv((1, 1), (0, 0), (0, 0), (1, 1), 1), x, w, name="y")
    return AssignLayouts()(lower_graph(build.build([y])))


def test_results_have_blocks_of_channels() -> None:
    program = laid_out(32, 8, 3)
    assert program.types["y.blocked"].layout == blocked(4, 1, 16)


@pytest.mark.parametrize(
    ("outputs", "size", "kernel"),
    [(4, 8, 3), (32, 4, 3), (32, 8, 1)],
    ids=["few outputs", "few uses", "short sums"],
)
def test_what_does_not_pay_stays(outputs: int, size: int, kernel: int) -> None:
    assert "y.blocked" not in laid_out(outputs, size, kernel).types


def test_images_of_a_gradient_stay_apart() -> None:
    """What is summed for each of many taps is no block: the other operand's would lie far apart."""
    build = GraphBuilder()
    x = build.input("x", TensorType((32, 32, 10, 10), F32))
    dy = build.input("dy", TensorType((32, 32, 8, 8), F32))
    y = build.emit(Conv((1, 1), (0, 0), (0, 0), (1, 1), 1), x, dy)
    program = AssignLayouts()(lower_graph(build.build([y])))
    assert program.types["x"].layout is None and "x.padded" not in program.types
