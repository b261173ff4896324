"""What is not one operator: names, open extents, subgraphs, states, whole models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite")
pytest.importorskip("ai_edge_litert")

import modelcc
from modelcc.frontends.tflite import import_tflite
from modelcc.ir.structure import states_of
from tests.frontends.tflite.comparison import (
    assert_same,
    litert,
    litert_results,
    our_results,
    random_feeds,
)
from tests.frontends.tflite.files import Op, Subgraph, T, constant, model, one

SHARED = Path(__file__).parents[4] / "shared" / "models" / "tflite"
F = "float32"


def dense() -> bytes:
    """A product with an open batch, called by a signature."""
    tensors = [T((1, 3), F, open=(-1, 3)), constant(np.eye(2, 3), F), T((1, 2), F)]
    op = Op("FULLY_CONNECTED", [0, 1, -1], [2], "FullyConnectedOptions")
    main = Subgraph(tensors, [0], [2], [op])
    return model([main], signature=({"image": 0}, {"scores": 2}))


def test_open_extents_are_named_and_signatures_name_the_ends() -> None:
    graph = import_tflite(dense())
    assert graph.inputs == ("image",) and graph.outputs == ("scores",)
    assert str(graph.types["image"]) == "f32[batch, 3]"
    fixed = import_tflite(dense(), {"batch": 4})
    assert fixed.types["scores"].shape == (4, 2)


def test_files_are_compiled(tmp_path: Path) -> None:
    path = tmp_path / "dense.tflite"
    path.write_bytes(dense())
    net = modelcc.compile(path)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(net(x), x[:, :2])


def branches() -> bytes:
    """Twice the operand if a condition holds, else its negative."""
    pair = [T((3,), F), T((3,), F)]
    main = Subgraph(
        [T((), "bool"), T((3,), F), T((3,), F)],
        [0, 1],
        [2],
        [Op("IF", [0, 1], [2], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})],
    )
    then = Subgraph(pair, [0], [1], [Op("ADD", [0, 0], [1], "AddOptions")])
    other = Subgraph(pair, [0], [1], [Op("NEG", [0], [1])])
    return model([main, then, other])


def loop() -> bytes:
    """Doubles a vector as long as a counter is below a bound."""
    states = [T((), "int32"), T((3,), F)]
    while_ = Op(
        "WHILE", [0, 1], [2, 3], "WhileOptions", {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2}
    )
    main = Subgraph([*states, *states], [0, 1], [2, 3], [while_])
    condition = Subgraph(
        [*states, constant(5), T((), "bool")], [0, 1], [3], [Op("LESS", [0, 2], [3])]
    )
    body = Subgraph(
        [*states, constant(1), *states],
        [0, 1],
        [3, 4],
        [Op("ADD", [0, 2], [3], "AddOptions"), Op("ADD", [1, 1], [4], "AddOptions")],
    )
    return model([main, condition, body])


@pytest.mark.parametrize("held", [True, False])
def test_branches(held: bool) -> None:
    x = np.array([1, -2, 3], np.float32)
    assert_same(branches(), [np.array(held), x])


@pytest.mark.parametrize("start", [0, 3, 9])
def test_loops(start: int) -> None:
    assert_same(loop(), [np.array(start, np.int32), np.array([1, -2, 3], np.float32)])


def counter() -> bytes:
    """A variable that begins with what a subgraph assigns, and grows by the operand."""
    handle = Op("VAR_HANDLE", [], [0], "VarHandleOptions", {"SharedName": "total"})
    first = Subgraph(
        [T((), "resource"), constant([7.0, 8.0], F)],
        [],
        [],
        [handle, Op("ASSIGN_VARIABLE", [0, 1], [])],
    )
    tensors = [T((), "resource"), T((2,), F), T((2,), F), T((2,), F)]
    operators = [
        Op("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}),
        handle,
        Op("READ_VARIABLE", [0], [2]),
        Op("ADD", [2, 1], [3], "AddOptions"),
        Op("ASSIGN_VARIABLE", [0, 3], []),
    ]
    return model([Subgraph(tensors, [1], [3], operators), first])


def test_variables_are_states() -> None:
    data = counter()
    graph = import_tflite(data)
    assert [*states_of(graph.interface)] == ["total"]
    np.testing.assert_array_equal(graph.initial["total"].data, [7, 8])
    net, theirs = modelcc.compile(data, cache=None), litert(data)
    for x in np.arange(6, dtype=np.float32).reshape(3, 2):
        np.testing.assert_array_equal(net(x), litert_results(theirs, [x])[0])


def svdf() -> bytes:
    """Floats whose features are kept in a variable tensor."""
    rng = np.random.default_rng(1)
    tensors = [
        T((2, 3), F),
        constant(rng.standard_normal((4, 3)), F),
        constant(rng.standard_normal((4, 5)), F),
        constant([0.5, -0.5], F),
        T((2, 20), F, variable=True),
        T((2, 2), F),
    ]
    call = Op("SVDF", range(5), [5], "SVDFOptions", {"Rank": 2, "FusedActivationFunction": 1})
    return model([Subgraph(tensors, [0], [5], [call])])


def test_variable_tensors_are_states() -> None:
    data = svdf()
    net, theirs = modelcc.compile(data, cache=None), litert(data)
    for x in np.random.default_rng(2).standard_normal((7, 2, 3)).astype(np.float32):
        np.testing.assert_allclose(net(x), litert_results(theirs, [x])[0], 1e-5, 1e-5)


def test_a_bias_may_have_the_axis_of_its_weights() -> None:  # as old converters write it
    def layer(axis: int) -> bytes:
        scales = {"scale": [0.01, 0.02], "zero": [0, 0]}
        tensors = [
            T((1, 4, 4, 2), "int8", 0.1),
            constant(np.arange(18).reshape(1, 3, 3, 2), "int8", axis=3, **scales),
            constant([5, -9], "int32", axis=axis, **scales),
            T((1, 4, 4, 2), "int8", 0.3),
        ]
        options = {"DepthMultiplier": 1, "StrideH": 1, "StrideW": 1}
        return one("DEPTHWISE_CONV_2D", tensors, "DepthwiseConv2DOptions", **options)

    feeds = random_feeds(layer(0))
    (wanted,) = our_results(layer(0), feeds)
    np.testing.assert_array_equal(our_results(layer(3), feeds)[0], wanted)


def shared(name: str) -> bytes:
    path = SHARED / f"{name}.tflite"
    if not path.is_file():
        pytest.skip("the shared models are not here")
    return path.read_bytes()


INTEGER = ("mlperf_kws_int8", "tflm_hello_world_int8", "tflm_micro_speech_int8")


@pytest.mark.parametrize("name", INTEGER)
def test_integer_models_bit_by_bit(name: str) -> None:
    data = shared(name)
    for seed in range(3):
        assert_same(data, random_feeds(data, seed))


def test_lstms_over_calls() -> None:
    data = shared("tflm_mnist_lstm_int8")
    theirs, feeds = litert(data), random_feeds(data)
    net = modelcc.compile(data)
    for _ in range(3):
        np.testing.assert_array_equal(net(*feeds), litert_results(theirs, feeds)[0])


def test_hybrid_and_sparse_models() -> None:
    for name in ("dtln_1_quant", "mlperf_kws_f32"):
        data: Any = shared(name)
        feeds = random_feeds(data)
        pairs = zip(litert_results(litert(data), feeds), our_results(data, feeds), strict=True)
        for right, own in pairs:
            np.testing.assert_allclose(own, right, 1e-4, 1e-5)
