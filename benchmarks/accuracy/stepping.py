"""Layers that quantise their state in every step: each step from ONNX Runtime's own state.

An LSTM with quantised states amplifies the error of an element once it was rounded to the other of
two quantisation steps.  So a layer of T steps becomes T layers of one step, each of which both
engines compute from ONNX Runtime's state there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import modelcc
from benchmarks.accuracy.peer import session
from benchmarks.accuracy.subjects import Arrays

STEPPED = "DynamicQuantizeLSTM"
X, W, R, B, LENGTHS, H, C, P = range(8)
STATES = (H, C)
PER_DIRECTION = (W, R, B, P, 8, 9, 10, 11)
"""Operands of which each direction has its own slice; from 8 on scales and zero points."""
EXTREMES = 2
"""Rows added to the batch: of the minimum and of the maximum input, so that the inputs of a step
are quantised as those of all steps.  Their states are 0, which every range of states contains."""


@dataclass(frozen=True)
class Stepped:
    """The largest difference of the states after one time step, in quantisation steps, and how far
    the same steps are, in ONNX Runtime itself, from its run of the whole sequence."""

    worst: float
    from_whole: float


def can_step(model: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    """Whether the node's weights are constants and all its sequences are of one length."""
    known = {tensor.name for tensor in model.graph.initializer}
    given = (*node.input, *[""] * 12)[:12]
    constant = all(given[i] in known for i in PER_DIRECTION if given[i])
    return node.op_type == STEPPED and constant and not given[LENGTHS]


def stepped(model: onnx.ModelProto, node: onnx.NodeProto, values: Arrays) -> Stepped:
    """The layer ``node``, step by step; ``values`` are its operands and results."""
    found = [_one_direction(model, node, values, d) for d in range(values[node.output[0]].shape[1])]
    return Stepped(
        max(each.worst for each in found),
        max(each.from_whole for each in found),
    )


def _one_direction(
    model: onnx.ModelProto, node: onnx.NodeProto, values: Arrays, which: int
) -> Stepped:
    x, y = values[node.input[X]], values[node.output[0]][:, which]
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if which or attributes.get("direction", b"forward") == b"reverse":
        x, y = x[::-1], y[::-1]
    _, batch, hidden = y.shape
    extremes = np.full((EXTREMES, x.shape[2]), [[x.min()], [x.max()]], x.dtype)
    one = one_step(model, node, which, batch + EXTREMES, attributes)
    peer, ours = session(one), modelcc.compile(one, threads=1, cache=None)
    states = [np.zeros((1, batch + EXTREMES, hidden), np.float32) for _ in STATES]
    for place, i in enumerate(STATES):
        if len(node.input) > i and node.input[i]:
            states[place][0, :batch] = values[node.input[i]][which]
    worst = from_whole = 0.0
    for now, whole in zip(x, y, strict=True):
        feeds = {"x": np.concatenate([now, extremes])[None], "h": states[0], "c": states[1]}
        wanted = [*map(np.asarray, peer.run(["next_h", "next_c"], feeds))]
        got = ours.run(feeds)
        states = [np.array(state) for state in wanted]
        for state in states:
            state[:, batch:] = 0
        pairs = zip(("next_h", "next_c"), wanted, strict=True)
        worst = max(worst, *(_apart(got[name], state, batch) for name, state in pairs))
        from_whole = max(from_whole, _apart(whole[None], wanted[0], batch))
    return Stepped(worst, from_whole)


def _apart(got: np.ndarray, wanted: np.ndarray, batch: int) -> float:
    """The largest difference in units of 1/255 of the range, which contains 0."""
    known = wanted[:, :batch].astype(np.float64)
    extent = max(float(known.max()), 0.0) - min(float(known.min()), 0.0)
    return float(np.abs(got[:, :batch] - known).max()) / max(extent, 1e-30) * 255


def one_step(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    which: int,
    batch: int,
    attributes: Mapping[str, Any],
) -> onnx.ModelProto:
    """One step of direction ``which`` of the layer: x, h, c to next_h, next_c."""
    constants = dict(_constants(model, node, which))
    names = {X: "x", H: "h", C: "c", **{i: f"operand{i}" for i in constants}}
    operands = [names.get(i, "") for i in range(len(node.input))]
    kept = {k: v for k, v in attributes.items() if k != "direction"}
    layer = helper.make_node(
        STEPPED, operands, ["", "next_h", "next_c"], domain=node.domain, **kept
    )
    hidden = int(constants[R].shape[1])
    shapes = {"x": constants[W].shape[1], "h": hidden, "c": hidden}
    graph = helper.make_graph(
        [layer],
        "step",
        [_f32(name, (1, batch, width)) for name, width in shapes.items()],
        [_f32(name, (1, batch, hidden)) for name in ("next_h", "next_c")],
        [numpy_helper.from_array(value, f"operand{i}") for i, value in constants.items()],
    )
    version = model.ir_version
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=version)


def _f32(name: str, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def _constants(
    model: onnx.ModelProto, node: onnx.NodeProto, which: int
) -> Iterator[tuple[int, np.ndarray]]:
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    for i in PER_DIRECTION:
        if i < len(node.input) and node.input[i]:
            value = numpy_helper.to_array(known[node.input[i]])
            yield i, np.ascontiguousarray(value[which : which + 1])
