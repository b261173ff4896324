"""Blocks transposed in registers: what they hold, where they are used, and how far they read."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

import modelcc
from modelcc.ir.index import Sym
from modelcc.ir.loop import Buffer, Function, Load, Parameter, Shuffle, Store
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.loop_traversal import statement_expressions, statements, walk
from modelcc.ir.tensor import Read
from modelcc.ir.types import BOOL, F32, F64, I64, DType
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.lanes import Lanes
from modelcc.schedule.nest import LoopVar
from modelcc.targets.cpu.transposition import TransposedReads, load_block
from tests.machines import chosen_options
from tests.planned_functions import planned_functions


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("points", [2, 4, 7, 16])
@pytest.mark.parametrize("active", [None, 3])
def test_a_block_is_what_a_gather_reads(
    dtype: DType, lanes: int, points: int, active: int | None
) -> None:
    points = min(points, lanes)
    read = Read("x", (Sym("l") * 20 + Sym("i") + 5,), dtype)
    block = TransposedReads(LoopVar("i", points, "i"), (read,))
    masked: frozenset[str] = frozenset() if active is None else frozenset({"x"})
    corners = [{"i": n} for n in range(points)]
    loads, found = load_block(block, corners, Lanes("l", lanes, active, masked), FreshNames())
    stores = [Store("y", n * lanes, found["x", Sym("l") * 20 + n + 5]) for n in range(points)]
    rows = lanes if active is None else active
    size = (rows - 1) * 20 + points + 5  # reading one element more would raise
    parameters = (
        Parameter(Buffer("x", dtype, size)),
        Parameter(Buffer("y", dtype, lanes * points), mutable=True),
    )
    x = np.arange(1, size + 1, dtype=dtype.numpy)
    y = np.full(lanes * points, -1, dtype.numpy)
    interpret_loops(Function("f", parameters, (), (*loads, *stores)), [x, y], ())
    wanted = [
        [x[row * 20 + n + 5] if row < rows else 0 for row in range(lanes)] for n in range(points)
    ]
    np.testing.assert_array_equal(y.reshape(points, lanes), wanted)


def transposition(shape: tuple[int, ...], order: tuple[int, ...], dtype: DType = F32):
    types = {F32: TensorProto.FLOAT, F64: TensorProto.DOUBLE, I64: TensorProto.INT64,
             BOOL: TensorProto.BOOL}  # fmt: skip
    turned = [shape[axis] for axis in order]
    x = helper.make_tensor_value_info("x", types[dtype], shape)
    y = helper.make_tensor_value_info("y", types[dtype], turned)
    node = helper.make_node("Transpose", ["x"], ["y"], perm=order)
    graph = helper.make_graph([node], "g", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


CASES = [
    ((16, 16), (1, 0)), ((5, 4), (1, 0)), ((33, 70), (1, 0)), ((3, 100), (1, 0)),
    ((100, 3), (1, 0)), ((2, 20, 7, 9), (0, 2, 3, 1)), ((2, 7, 9, 20), (0, 3, 1, 2)),
    ((3, 4, 5, 6), (3, 2, 1, 0)), ((2, 17, 18), (2, 0, 1)), ((40, 1, 6), (2, 1, 0)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [F32, I64])
@pytest.mark.parametrize(("shape", "order"), CASES)
def test_transpositions(shape: tuple[int, ...], order: tuple[int, ...], dtype: DType) -> None:
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype.numpy)
    net = modelcc.compile(transposition(shape, order, dtype), cache=None)
    np.testing.assert_array_equal(net(x), x.transpose(order))


def statements_of(model: ModelProto):
    functions = planned_functions(model, chosen_options())
    return [s for f in functions for s in statements(f.body)]


def expressions(model: ModelProto):
    found = statements_of(model)
    return [e for s in found for outer in statement_expressions(s) for e in walk(outer)]


def test_elements_far_apart_are_loaded_with_their_neighbours() -> None:
    found = expressions(transposition((64, 48), (1, 0)))
    assert any(isinstance(e, Shuffle) for e in found)
    assert all(e.stride == 1 for e in found if isinstance(e, Load))


def test_truth_values_are_not_transposed_in_registers() -> None:
    found = expressions(transposition((64, 48), (1, 0), BOOL))
    assert not any(isinstance(e, Shuffle) for e in found)


def after_convolution(node: Any, channels: int, size: tuple[int, int]):
    """An operator on the blocked channels that a convolution leaves."""
    weights = np.random.default_rng(0).standard_normal((channels, 3, 1, 1)).astype(np.float32)
    tail = parser.parse_node(f"y = {node}")
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), tail]
    shape = np.array([1, channels, 2 * size[0] + 1, 3 * size[1]])
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, *size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(shape, "s")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model


@pytest.mark.parametrize(
    "node", ['Resize<mode = "linear">(a, , , s)', "DepthToSpace<blocksize = 2>(a)"]
)
@pytest.mark.parametrize("case", [(16, (7, 9)), (20, (5, 17)), (4, (6, 33)), (36, (4, 3))], ids=str)
def test_vectors_across_the_results(node: Any, case: Any) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = after_convolution(node, *case)
    x = np.random.default_rng(1).standard_normal((1, 3, *case[1])).astype(np.float32)
    wanted = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})[0]
    np.testing.assert_allclose(modelcc.compile(model, cache=None)(x), wanted, atol=1e-5)


def test_results_are_stored_in_whole_vectors() -> None:
    found = statements_of(after_convolution('Resize<mode = "linear">(a, , , s)', 32, (8, 16)))
    assert all(s.value.lanes > 1 for s in found if isinstance(s, Store))
