"""ONNX models of small graphs: names, sizes, bodies, what is refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import ModelProto

from conformance.onnx_emission import run_model
from modelcc.exporters.onnx import export_onnx
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import DIM, Index, Range, Sym, maximum, minimum
from modelcc.ir.types import BF16, BOOL, F32, I32, I64, STRING, Array, TensorType
from modelcc.ops.activation import Relu
from modelcc.ops.arithmetic import Add, BitCast, Identity, Mul
from modelcc.ops.broadcast import Expand, ReduceSum, Reshape
from modelcc.ops.comparison import Less
from modelcc.ops.control import If, Loop
from modelcc.ops.conv import Conv
from modelcc.ops.generate import Indices
from modelcc.ops.linear_algebra import Cholesky
from modelcc.ops.matmul import MatMul
from modelcc.ops.nonzero import NonZero
from modelcc.ops.runtime_size import ReadSize
from modelcc.ops.slicing import At, Slice
from modelcc.ops.transcendental import Sin


def checked(graph: Graph) -> ModelProto:
    """The model of a graph, which ONNX's checker takes."""
    model = export_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    return model


def assert_same(graph: Graph, **feeds: Array) -> None:
    """onnxruntime computes what the interpreter does."""
    wanted = interpret(graph, feeds)
    for name, found in zip(graph.outputs, run_model(checked(graph), feeds), strict=True):
        np.testing.assert_allclose(found, wanted[name], rtol=1e-6, err_msg=name)


def floats(*shape: int) -> Array:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def test_values_and_nodes_are_called_as_in_the_model() -> None:
    build = GraphBuilder("small")
    x = build.input("x", TensorType((Sym("batch"), 3), F32))
    weights = build.constant(np.arange(6, dtype=np.float32).reshape(3, 2), name="w")
    h = build.emit(MatMul(), x, weights, name="h/1", source=("layer/matmul",))
    graph = build.build([build.emit(Relu(), h, name="y", source=("layer/relu",))])
    model = checked(graph)
    found = [(n.op_type, n.name, list(n.input), list(n.output)) for n in model.graph.node]
    assert found == [
        ("MatMul", "layer/matmul", ["x", "w"], ["h/1"]),
        ("Relu", "layer/relu", ["h/1"], ["y"]),
    ]
    assert [i.name for i in model.graph.initializer] == ["w"]
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert (dims[0].dim_param, dims[1].dim_value) == ("batch", 3)
    assert model.producer_name == "modelcc"
    assert export_onnx(graph).SerializeToString() == model.SerializeToString()


def test_the_version_is_the_first_that_has_all() -> None:
    for dtype, op, opset in ((F32, Sin(), 21), (BF16, Sin(), 23), (F32, BitCast(I32), 26)):
        build = GraphBuilder("versions")
        x = build.input("x", TensorType((4,), dtype))
        assert checked(build.build([build.emit(op, x)])).opset_import[0].version == opset


def test_outputs_that_no_node_makes() -> None:
    """An input, a constant, and one value under two names."""
    build = GraphBuilder("outputs")
    x = build.input("x", TensorType((2,), F32))
    constant = build.constant(floats(3), name="c")
    y = build.emit(Add(), x, x, name="y")
    graph = build.build([x, constant, y, build.emit(Identity(), y, name="z")])
    assert_same(graph, x=floats(2))


n, m = Sym("n"), Sym("m")


@pytest.mark.parametrize(
    "size",
    [
        *(n, n + 3, 2 * n - 7, n * m - 2 * n * n + 1, (n + 1) // 4, (n - 9) // 4, (3 - n) % 5),
        *(minimum(n, m, 4), maximum(n, 2 * m - 1), (n * (m // 2)) % (m + 1), (n // m) // 2),
    ],
)
def test_sizes(size: Index) -> None:
    build = GraphBuilder("sizes", {"n": DIM, "m": DIM})
    build.input("x", TensorType((n, 2 * m + 1), F32))
    graph = build.build([build.emit(Indices((size, 5, size + 1), (3,)), name="y")])
    for rows, columns in ((1, 3), (8, 7), (13, 11)):
        assert_same(graph, x=floats(rows, columns))


def test_a_size_of_no_input_is_refused() -> None:
    build = GraphBuilder("sizes", {"n": DIM})
    x = build.input("x", TensorType((1,), F32))
    graph = build.build([build.emit(Expand((n,)), x, source=("wide",))])
    with pytest.raises(ModelError, match="wide: Expand: the size n is that of no input"):
        export_onnx(graph)


def test_sizes_from_data() -> None:
    """The columns that NonZero finds, and no others."""
    build = GraphBuilder("found", {"k": Range(0, 6)})
    x = build.input("x", TensorType((2, 3), F32))
    places, count = build.add(NonZero(), x)
    build.add(ReadSize(("k",)), count)
    k = Sym("k")
    graph = build.build([build.emit(Slice((0, 0), (2, k), (1, 1)), places, name="y")])
    assert_same(graph, x=np.array([[0, 1, 0], [2, 0, 3]], np.float32))
    assert_same(graph, x=np.zeros((2, 3), np.float32))


def _branch(op: Add | Mul) -> Graph:
    build = GraphBuilder("branch")
    x, y = (build.input(name, TensorType((n, 3), F32)) for name in "xy")
    return build.build([build.emit(op, x, y, name="y_1"), x])


@pytest.mark.parametrize("taken", [True, False])
def test_branches(taken: bool) -> None:
    """A branch that gives back what it captures, and whose names are those outside."""
    build = GraphBuilder("branches")
    condition = build.input("condition", TensorType((), BOOL))
    x, y = (build.input(name, TensorType((n, 3), F32)) for name in "xy")
    first, second = build.add(If(_branch(Add()), _branch(Mul())), condition, x, y)
    graph = build.build([first, build.emit(Relu(), second, name="y_1")])
    assert_same(graph, condition=np.array(taken), x=floats(4, 3), y=floats(4, 3))


def _rows(inner: bool) -> Graph:
    """Adds ``x[step]`` to the sum, again and again in a loop whose counter has the same name."""
    build = GraphBuilder("rows", {"step": Range(0, None)})
    s, x = build.input("s", TensorType((3,), F32)), build.input("x", TensorType((n, 3), F32))
    step = build.emit(At(0, Sym("step")), x)
    if inner:
        (s,) = build.add(Loop(_rows(False), "step", n, 1), s, x)
    after = build.emit(Add(), s, step)
    if not inner:
        return build.build([after])
    count = build.emit(Indices((Sym("step"),), (), F32))
    return build.build([after, build.emit(Mul(), after, count)])


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_loops_in_loops(backwards: bool, axis: int) -> None:
    build = GraphBuilder("loops")
    s, x = build.input("s", TensorType((3,), F32)), build.input("x", TensorType((n, 3), F32))
    op = Loop(_rows(True), "step", n, 1, False, (axis,), (backwards,))
    assert_same(build.build(build.add(op, s, x)), s=floats(3), x=floats(5, 3))


def test_a_loop_that_ends_early_leaves_zeros() -> None:
    body = GraphBuilder("body", {"step": Range(0, None)})
    body.input("more", TensorType((), BOOL))
    s = body.input("s", TensorType((), F32))
    after = body.emit(Add(), s, body.constant(1.0))
    going_on = body.emit(Less(), after, body.constant(3.0))
    inner = body.build([going_on, after, body.emit(Reshape((1,)), after)])
    build = GraphBuilder("early")
    more, s = build.input("more", TensorType((), BOOL)), build.input("s", TensorType((), F32))
    op = Loop(inner, "step", 6, 2, True, (0,), (True,))
    graph = build.build(build.add(op, more, s))
    for first in (True, False):
        assert_same(graph, more=np.array(first), s=np.zeros((), np.float32))


def test_all_that_has_no_form_is_named_at_once() -> None:
    build = GraphBuilder("refused")
    x = build.input("x", TensorType((4, 4), F32))
    factors = [build.add(Cholesky(), x, source=(f"model.py:{line}",))[0] for line in (7, 9)]
    build.add(Cholesky(), x, source=("unused",))
    total = build.emit(ReduceSum((0, 1), False), build.emit(Add(), *factors))
    with pytest.raises(ModelError) as caught:
        export_onnx(build.build([total]))
    text = str(caught.value)
    assert "refused: 2 nodes of the model cannot be written as ONNX" in text
    assert "model.py:7: Cholesky: ONNX has no operator for it" in text
    assert "model.py:9: Cholesky" in text and "unused" not in text


def test_texts_are_refused() -> None:
    build = GraphBuilder("texts")
    x = build.input("x", TensorType((4,), STRING))
    with pytest.raises(ModelError, match="input x: ONNX has no elements of string"):
        export_onnx(build.build([x]))


def test_element_types_that_an_operator_has_not() -> None:
    build = GraphBuilder("types")
    x, w = (build.input(name, TensorType((1, 1, 4), I64)) for name in "xw")
    y = build.emit(Conv((1,), (0,), (0,), (1,)), x, w, source=("conv1",))
    with pytest.raises(ModelError, match="conv1: Conv: ONNX has no Conv of i64"):
        export_onnx(build.build([y]))
