"""Quantised models as exporters write them, compiled to integer kernels, against onnxruntime.

Results may differ by one step of the last quantisation, where a sum lies between two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import modelcc
from modelcc.driver import pipeline, target_of
from modelcc.ir.loop import Function, Intrinsic, ScalarCall
from modelcc.ir.loop_traversal import statement_expressions, statements, walk
from modelcc.ir.types import Array
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig
from tests.frontends.onnx.onnx_models import run_onnxruntime
from tests.machines import chosen_options

OPTIONS = chosen_options(threads=1)


@dataclass
class Net:
    """A model under construction, in QDQ form."""

    shape: tuple[Any, ...]
    activations: type[np.integer[Any]] = np.uint8

    def __post_init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.rng = np.random.default_rng(0)

    def constant(self, value: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(value, name))
        return name

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def quantised(self, x: str, scale: float, zero: int) -> str:
        """``x`` through QuantizeLinear and DequantizeLinear."""
        shift = 128 if self.activations is np.int8 else 0
        parameters = (
            self.constant(np.array(scale, np.float32)),
            self.constant(np.array(zero - shift, self.activations)),
        )
        return self.node(
            "DequantizeLinear", self.node("QuantizeLinear", x, *parameters), *parameters
        )

    def weights(self, *shape: int, axis: int | None = None, unsigned: bool = False) -> str:
        """Dequantised weights; one scale per slice of ``axis``."""
        dtype = np.uint8 if unsigned else np.int8
        limits = np.iinfo(dtype)
        data = self.rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
        count = () if axis is None else (shape[axis],)
        scale = self.rng.uniform(0.002, 0.004, count).astype(np.float32)
        zero = np.full(count, 131 if unsigned else 0, dtype)
        attributes = {} if axis is None else {"axis": axis}
        operands = (self.constant(data), self.constant(np.asarray(scale)), self.constant(zero))
        return self.node("DequantizeLinear", *operands, **attributes)

    def bias(self, count: int) -> str:
        return self.constant(self.rng.standard_normal(count).astype(np.float32))

    def model(self, result: str) -> ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        y = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "g", [x], [y], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds(shape: tuple[int, ...]) -> dict[str, Array]:
    return {"x": np.random.default_rng(1).standard_normal(shape).astype(np.float32)}


def assert_agrees(
    model: ModelProto, shape: tuple[int, ...], step: float, apart: float = 0.01
) -> None:
    """At most one step of size ``step`` apart, and that in a fraction ``apart`` of all places."""
    (expected,) = run_onnxruntime(model, feeds(shape)).values()
    (got,) = modelcc.compile(model, threads=1, cache=None).run(feeds(shape)).values()
    difference = np.abs(got - expected) / step
    assert difference.max() <= 1.01
    assert (difference > 0.5).mean() < apart


def functions(model: ModelProto) -> list[Function]:
    stages = before_block(pipeline(target_of(OPTIONS), OPTIONS, BuildConfig()), "loop")
    program = run_stages(stages, model)
    return list(program.functions)


def has_dots(function: Function) -> bool:
    """Whether it multiplies four bytes, or two words where there is no instruction for bytes."""
    return any(
        isinstance(e, Intrinsic) or (isinstance(e, ScalarCall) and e.function == "dot_halves")
        for s in statements(function.body)
        for whole in statement_expressions(s)
        for e in walk(whole)
    )


CONVOLUTIONS: tuple[dict[str, Any], ...] = (
    {"channels": 32, "outputs": 48},
    {"channels": 3, "outputs": 16, "kernel": 5, "stride": 2},
    {"channels": 20, "outputs": 24, "zero": 0},
    {"channels": 16, "outputs": 32, "kernel": 1, "pad": 0, "axis": 0},
    {"channels": 24, "outputs": 40, "axis": 0, "relu": True},
    {"channels": 16, "outputs": 20, "unsigned": True},
    {"channels": 32, "outputs": 32, "groups": 32, "axis": 0},
    {"channels": 32, "outputs": 64, "groups": 2},
)


def convolution(
    dtype: type[np.integer[Any]],
    channels: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    pad: int = 1,
    groups: int = 1,
    zero: int = 121,
    axis: int | None = None,
    relu: bool = False,
    unsigned: bool = False,
) -> tuple[ModelProto, tuple[int, ...]]:
    shape = (1, channels, 11, 10)
    net = Net(shape, dtype)
    x = net.quantised("x", 0.03, zero)
    w = net.weights(outputs, channels // groups, kernel, kernel, axis=axis, unsigned=unsigned)
    y = net.node(
        "Conv", x, w, net.bias(outputs), group=groups, strides=[stride] * 2, pads=[pad] * 4
    )
    y = net.node("Relu", y) if relu else y
    return net.model(net.quantised(y, 0.1, 0 if relu else 120)), shape


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(case: dict[str, Any], dtype: type[np.integer[Any]]) -> None:
    model, shape = convolution(dtype, **case)
    assert_agrees(model, shape, 0.1)


@pytest.mark.parametrize("case", CONVOLUTIONS[:6], ids=str)
def test_convolutions_are_dot_products(case: dict[str, Any]) -> None:
    model, _ = convolution(np.int8, **case)
    assert any(map(has_dots, functions(model)))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("rows", [1, 7, "n"])
def test_products(rows: int | str, axis: int | None, dtype: type[np.integer[Any]]) -> None:
    net = Net((rows, 64), dtype)
    product = net.node("MatMul", net.quantised("x", 0.03, 118), net.weights(64, 40, axis=axis))
    model = net.model(net.quantised(net.node("Add", product, net.bias(40)), 0.05, 130))
    assert_agrees(model, (7 if rows == "n" else int(rows), 64), 0.05)
    assert any(map(has_dots, functions(model)))


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_product_of_two_run_time_operands(dtype: type[np.integer[Any]]) -> None:
    """Scores of attention: a query by keys, neither of them constant."""
    net = Net((2, 12, 32), dtype)
    q = net.quantised("x", 0.03, 118)
    k = net.quantised(net.node("Mul", "x", net.constant(np.array([0.5], np.float32))), 0.02, 125)
    scores = net.node("MatMul", q, net.node("Transpose", k, perm=[0, 2, 1]))
    assert_agrees(net.model(net.quantised(scores, 0.3, 100)), (2, 12, 32), 0.3)


def test_residual_network() -> None:
    """Two convolutions, their sum, pooling and a classifier: one kernel for each contraction."""
    net = Net((1, 16, 12, 12), np.int8)
    x = net.quantised("x", 0.03, 121)
    a = net.node("Conv", x, net.weights(32, 16, 3, 3), net.bias(32), pads=[1] * 4)
    a = net.quantised(net.node("Relu", a), 0.1, 0)
    b = net.node("Conv", x, net.weights(32, 16, 1, 1), net.bias(32))
    b = net.quantised(b, 0.08, 120)
    y = net.quantised(net.node("Relu", net.node("Add", a, b)), 0.12, 0)
    y = net.quantised(net.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]), 0.12, 0)
    model = net.model(y)
    assert_agrees(model, (1, 16, 12, 12), 0.12, apart=0.03)  # three quantisations in a row
    assert sum(map(has_dots, functions(model))) == 2


def test_movement_stays_bytes() -> None:
    net = Net((2, 6, 4))
    x = net.quantised("x", 0.03, 121)
    shape = net.constant(np.array([4, 12]))
    moved = net.node("Reshape", net.node("Transpose", x, perm=[0, 2, 1]), shape)
    model = net.model(net.node("Relu", net.quantised(moved, 0.03, 121)))
    assert_agrees(model, (2, 6, 4), 0.03)
