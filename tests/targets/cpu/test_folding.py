"""Convolutions with few outputs: vectors along the channels they read, folded at the end."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import modelcc
from modelcc.driver import Options
from modelcc.ir.loop import Buffer, Function, Load, Parameter, Register, Store, Var
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_traversal import statement_expressions, statements, walk
from modelcc.ir.types import F32
from modelcc.schedule.expression import FreshNames
from modelcc.targets.cpu.folding import folded
from tests.planned_functions import planned_functions

onnxruntime = pytest.importorskip("onnxruntime")


def two_layers(
    channels: int, outputs: int, size: tuple[int, ...], kernel: int, stride: int, operator: str
) -> ModelProto:
    """A convolution whose channels come in blocks, then one with few outputs."""
    rng = np.random.default_rng(0)

    def weights(name: str, shape: tuple[int, ...]) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32) / 8, name)

    second = (outputs, channels) if operator == "Conv" else (channels, outputs)
    pads = [(kernel - 1) // 2] * 4
    nodes = [
        helper.make_node("Conv", ["x", "v"], ["a"]),
        helper.make_node(operator, ["a", "w", "b"], ["c"], strides=[stride] * 2, pads=pads),
        helper.make_node("Tanh", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, *size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights("v", (channels, 4, 1, 1)), weights("w", (*second, kernel, kernel)),
         weights("b", (outputs,))],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


CASES = [
    (32, 3, (20, 20), 3, 1, "Conv"), (32, 3, (9, 40), 3, 2, "Conv"),
    (20, 1, (18, 33), 1, 1, "Conv"),
    (16, 2, (7, 7), 7, 1, "Conv"), (40, 3, (8, 16), 4, 2, "ConvTranspose"),
    (16, 1, (5, 30), 3, 1, "ConvTranspose"),
    (28, 1, (9, 17), 4, 2, "ConvTranspose"), (44, 2, (9, 17), 3, 1, "Conv"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_few_outputs(case: Any) -> None:
    model = two_layers(*case)
    x = np.random.default_rng(1).standard_normal((1, 4, *case[2])).astype(np.float32)
    wanted = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})[0]
    np.testing.assert_allclose(modelcc.compile(model, cache=None)(x), wanted, atol=1e-5)


@pytest.mark.share(2, "case", "cpu")
@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_nothing_is_gathered(case: Any, cpu: str) -> None:
    functions = planned_functions(two_layers(*case), Options(target="c", cpu=cpu))
    found = (s for f in functions for s in statements(f.body))
    inside = [e for s in found for outer in statement_expressions(s) for e in walk(outer)]
    assert all(e.stride in (0, 1) for e in inside if isinstance(e, Load) and e.lanes > 1)


@pytest.mark.parametrize("lanes", [2, 8, 16])
@pytest.mark.parametrize("count", [1, 2, 7, 16])
def test_folded(lanes: int, count: int) -> None:
    count = min(count, lanes)
    registers = [Var(f"r{n}", F32, lanes) for n in range(count)]
    loads = [Register(f"r{n}", Load("x", n * lanes, F32, lanes)) for n in range(count)]
    steps, total = folded(registers, "sum", FreshNames())
    buffers = Buffer("x", F32, count * lanes), Buffer("y", F32, lanes)
    parameters = (Parameter(buffers[0]), Parameter(buffers[1], mutable=True))
    body = (*loads, *steps, Store("y", 0, total))
    x = np.arange(count * lanes, dtype=np.float32).reshape(count, lanes)
    y = np.full(lanes, 9, np.float32)
    interpret_loops(Function("f", parameters, (), body), [x, y], ())
    np.testing.assert_array_equal(y, [*x.sum(1), *[0] * (lanes - count)])
