"""A step of a recurrent layer is one kernel, or two where all units are needed in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import modelcc
from modelcc.driver import pipeline, target_of
from modelcc.ir.region import Repeat
from modelcc.ir.tensor import Item, Kernel, TensorProgram
from modelcc.pipeline import before_block, run_stages
from modelcc.targets.base import BuildConfig
from tests.machines import chosen_options

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
TIME, BATCH = 3, 2


def layer(kind: str, hidden: int, extra: Sequence[str] = (), **attributes: Any) -> onnx.ModelProto:
    """One layer of random weights; ``extra`` names optional inputs that it has."""
    rng = np.random.default_rng(1)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = GATES[kind] * hidden

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        values = rng.standard_normal((directions, *shape)) / np.sqrt(hidden)
        return numpy_helper.from_array(values.astype(np.float32), name)

    constants = [weights("w", gates, 8), weights("r", gates, hidden), weights("b", 2 * gates)]
    constants += [weights("p", 3 * hidden)] if "p" in extra else []
    lengths = numpy_helper.from_array(np.array([3, 2], np.int32), "lengths")
    constants += [lengths] if "lengths" in extra else []
    most = 4 if kind == "LSTM" else 2
    optional = ["lengths" if "lengths" in extra else "", "", "", "p" if "p" in extra else ""]
    node = helper.make_node(
        kind, ["x", "w", "r", "b", *optional[:most]], ["y"], hidden_size=hidden, **attributes
    )
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [TIME, BATCH, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [TIME, directions, BATCH, hidden])
    graph = helper.make_graph([node], "layer", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def steps(program: TensorProgram) -> Iterator[list[Item]]:
    """What is in the program's loops."""
    for item in program.items:
        if isinstance(item, Repeat):
            yield list(item.body)


CASES: list[tuple[str, int, tuple[str, ...], dict[str, Any], int]] = [
    ("LSTM", 192, (), {}, 1),
    ("LSTM", 48, (), {}, 1),
    ("LSTM", 192, ("p",), {}, 1),
    ("LSTM", 192, ("lengths",), {"direction": "bidirectional"}, 1),
    ("GRU", 192, (), {"linear_before_reset": 1}, 1),
    ("GRU", 192, (), {}, 2),
    ("GRU", 48, (), {"direction": "reverse"}, 2),
    ("RNN", 192, (), {}, 1),
]


@pytest.mark.parametrize(("kind", "hidden", "extra", "attributes", "kernels"), CASES)
def test_steps_are_kernels(
    kind: str, hidden: int, extra: tuple[str, ...], attributes: dict[str, Any], kernels: int
) -> None:
    options = chosen_options(threads=2)
    stages = before_block(pipeline(target_of(options), options, BuildConfig()), "schedule")
    found = list(steps(run_stages(stages, layer(kind, hidden, extra, **attributes))))
    assert found
    for step in found:
        assert [type(item) for item in step] == [Kernel] * kernels


@pytest.mark.parametrize(("kind", "hidden", "extra", "attributes", "kernels"), CASES)
def test_layers_agree_with_onnxruntime(
    kind: str, hidden: int, extra: tuple[str, ...], attributes: dict[str, Any], kernels: int
) -> None:
    model = layer(kind, hidden, extra, **attributes)
    x = np.random.default_rng(0).standard_normal((TIME, BATCH, 8)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    wanted = np.asarray(session.run(None, {"x": x})[0])
    got = modelcc.compile(model, threads=2)(x)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("hidden", [16, 192])
def test_readers_of_two_products_are_joined_once(hidden: int, threads: int) -> None:
    """Both gates of a unit that is written by hand depend on the input and on the state."""
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        unit (float[{BATCH}, {hidden}] x, float[{BATCH}, {hidden}] h)
            => (float[{BATCH}, {hidden}] y) {{
            gx = MatMul(x, w)
            gh = MatMul(h, r)
            zx, nx = Split <axis = 1> (gx)
            zh, nh = Split <axis = 1> (gh)
            zs = Add(zx, zh)
            z = Sigmoid(zs)
            reset = Mul(z, nh)
            ns = Add(nx, reset)
            n = Tanh(ns)
            some = Mul(z, h)
            y = Add(some, n)
        }}""")
    rng = np.random.default_rng(3)
    for name in "wr":
        values = rng.standard_normal((hidden, 2 * hidden)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    feeds = {name: rng.standard_normal((BATCH, hidden)).astype(np.float32) for name in "xh"}
    found = modelcc.compile(model, threads=threads, cache=None).run(feeds)["y"]
    peer = onnxruntime.InferenceSession(model.SerializeToString())
    np.testing.assert_allclose(found, np.asarray(peer.run(None, feeds)[0]), 1e-4, 1e-5)
