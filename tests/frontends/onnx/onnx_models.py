"""Small ONNX models made in tests, run by the graph interpreter and by onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, helper, numpy_helper

from modelcc.frontends.onnx import import_onnx
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.types import Array


def parsed(body: str, opset: int = 17) -> ModelProto:
    """A model in the syntax of :mod:`onnx.parser`, without its header."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{body}')


def one_node(
    op_type: str,
    operands: Sequence[Array | np.generic | None],
    opset: int = 17,
    constant: Sequence[int] = (),
    outputs: int = 1,
    **attributes: Any,
) -> tuple[ModelProto, dict[str, Array]]:
    """A model of one node and its inputs; operands at ``constant`` are initializers."""
    names = ["" if o is None else f"x{i}" for i, o in enumerate(operands)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, **attributes)
    present = [(n, np.asarray(o)) for n, o in zip(names, operands, strict=True) if o is not None]
    fixed = [numpy_helper.from_array(o, n) for n, o in present if int(n[1:]) in constant]
    feeds = {n: o for n, o in present if int(n[1:]) not in constant}
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(o.dtype), o.shape)
        for n, o in feeds.items()
    ]
    ends = [onnx.ValueInfoProto(name=r) for r in results]
    graph = helper.make_graph([node], "g", inputs, ends, fixed)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8 if opset < 21 else 10
    return model, feeds


UNSIGNED = {
    "DynamicQuantizeMatMul": (1, 3),
    "MatMulInteger": (1, 3),
    "MatMulIntegerToFloat": (1, 5),
    "QAttention": (1, 7),
    "QGemm": (3, 5),
    "QLinearConv": (3, 5),
}
"""Operators whose sums of u8 times i8 saturate in onnxruntime on processors without VNNI, unless
the i8 are initializers: operands with weights and their zero points."""


def with_unsigned_weights(
    model: ModelProto, feeds: Mapping[str, Array]
) -> tuple[ModelProto, dict[str, Array]]:
    """The same computation, with i8 weights of the only node as u8, 128 more like their zero
    points: sums of u8 times u8 do not saturate anywhere."""
    node, given = model.graph.node[0], dict(feeds)
    if len(model.graph.node) != 1 or node.op_type not in UNSIGNED:
        return model, given
    fixed = {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}
    values = fixed | given
    weights, zero = UNSIGNED[node.op_type]
    if values[node.input[weights]].dtype != np.int8:
        return model, given
    result = ModelProto()
    result.CopyFrom(model)
    node = result.graph.node[0]
    node.input.extend([""] * (zero + 1 - len(node.input)))
    if not node.input[zero]:
        node.input[zero] = "zero"
        values["zero"] = fixed["zero"] = np.zeros((), np.int8)
    for name in (node.input[weights], node.input[zero]):
        moved = np.asarray(values[name].astype(np.int16) + 128, np.uint8)
        (given if name in given else fixed)[name] = moved
    for value in result.graph.input:
        if value.name in (node.input[weights], node.input[zero]):
            value.type.tensor_type.elem_type = onnx.TensorProto.UINT8
    del result.graph.initializer[:]
    result.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in fixed.items())
    return result, given


def run_onnxruntime(model: ModelProto | str, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by onnxruntime, whose sums of bytes are exact."""
    if isinstance(model, ModelProto):
        model, feeds = with_unsigned_weights(model, feeds)
    source = model if isinstance(model, str) else model.SerializeToString()
    options = ort.SessionOptions()
    # Else sums of u8 times i8 initializers saturate on processors without VNNI.
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    results: Any = session.run(names, dict(feeds))  # arrays, and lists of maps
    return dict(zip(names, results, strict=True))


def assert_agrees(
    model: ModelProto,
    feeds: Mapping[str, Array],
    dims: Mapping[str, int] | None = None,
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> Graph:
    """The imported graph computes what onnxruntime computes, with equal dtypes and shapes."""
    graph = import_onnx(model, dims)
    verify_graph(graph)
    ours, theirs = interpret(graph, feeds), run_onnxruntime(model, feeds)
    assert list(ours) == list(theirs)
    for name, expected in theirs.items():
        assert ours[name].dtype == expected.dtype, name
        assert ours[name].shape == expected.shape, name
        np.testing.assert_allclose(ours[name], expected, rtol, atol, err_msg=name)
    return graph


def floats(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> Array:
    """Uniform random f32."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def ints(*shape: int, low: int = -5, high: int = 5, seed: int = 0) -> Array:
    """Uniform random i64."""
    return np.random.default_rng(seed).integers(low, high, shape)


def i64(*values: int) -> Array:
    """A vector of i64."""
    return np.array(values, np.int64)
