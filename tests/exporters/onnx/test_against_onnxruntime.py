"""Every op on its samples as ONNX, run by onnxruntime; models there and back; training graphs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from conformance.onnx_emission import difference, outcome, run_model
from conformance.sample_graphs import cases
from modelcc.driver import import_model
from modelcc.emit.emission import simplified
from modelcc.exporters.onnx import export_onnx
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Sym
from modelcc.ir.types import F32, F64, Array, TensorType
from modelcc.ops.fourier import FourierTransform
from modelcc.ops.fourier_tables import FourierTables
from modelcc.train.gradients import value_and_gradients
from tests.machines import chosen_options
from tests.small_models import computed_gather, mlp, two_outputs
from tests.test_models import convolutional
from tests.train.test_gradients import attention, network, recurrent

pytestmark = pytest.mark.filterwarnings("ignore")

_LOOPS = "its loops are no operator of ONNX, and it is not made of simpler ops"
_SIZES = "no input has the extent that is named"
REFUSED = {
    **dict.fromkeys(("Forest", "FeatureKeys", "FourierTables", "PivotPermutation"), _LOOPS),
    "MaxRoiPoolIndices": "ONNX's MaxRoiPool does not tell where it finds its elements",
    **dict.fromkeys(("Cholesky", "TriangularSolve", "Lu"), _LOOPS),
    **dict.fromkeys(("HouseholderQr", "Reflect", "OrthogonalRows", "Eigen"), _LOOPS),
}
"""Ops that have no form in ONNX → why.  A stale entry fails."""

PARTLY = dict.fromkeys(("Full", "Indices", "Iota", "Tile", "LateTile"), _SIZES)
"""Ops of which some samples with names are refused → why.  A stale entry fails."""

_NAN = "onnxruntime has no rule for NaN, where modelcc has NumPy's"
_ERF = "onnxruntime's erf of 64 bits has the error of one of 32"
_OLD = tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 32)
DIFFERENT = {
    **({("TopK", number): _NAN for number in (7, 9, 10)} if _OLD else {}),
    **dict.fromkeys((("ReduceMax", 14), ("ReduceMin", 14), ("Unique", 6), ("Unique", 7)), _NAN),
    **{(name, number): _NAN for name in ("ArgMax", "ArgMin") for number in (5, 11)},
    **dict.fromkeys((("Hardmax", 7), ("Hardmax", 8), ("RowHardmax", 5), ("RowHardmax", 6)), _NAN),
    ("NonMaxSuppression", 2): _NAN,
    **dict.fromkeys((("Erf", 4), ("Gelu", 4)), _ERF),
    ("FourierTransform", 6): "onnxruntime's transform is ten times further from the exact one",
    **{("GridSample", n): "onnxruntime moves points outside of the image, not taps, to its border"
       for n in (14, 15)},
}  # fmt: skip
"""Samples that onnxruntime computes otherwise → why.  A stale entry fails."""

CASES: dict[tuple[str, bool], list[Any]] = {}
for _case in cases():
    CASES.setdefault((type(_case[0]).__name__, _case[2]), []).append(_case)


@pytest.mark.parametrize(
    ("name", "named"), CASES, ids=[f"{n}-{'names' if d else 'numbers'}" for n, d in CASES]
)
def test_onnxruntime_computes_what_the_reference_does(name: str, named: bool) -> None:
    for op, number, by_name in CASES[name, named]:
        kind, reason = outcome(op, type(op).samples[number], by_name)
        if name in REFUSED:
            assert kind == "refused", number
        elif (name, number) in DIFFERENT:
            assert kind == "wrong", number
        elif getattr(op, "keep_nan", False):  # onnxruntime loses some, by its instructions
            assert kind in ("ok", "wrong"), number
        else:
            usual = {"ok", "judged", "no kernel"}
            assert kind in (usual | {"refused"} if named and name in PARTLY else usual), reason


def test_nearly_all_is_run() -> None:
    """No kernel: bf16, which neither onnxruntime nor NumPy takes from it, and few others."""
    found = [outcome(op, type(op).samples[n], named)[0] for op, n, named in cases()]
    assert found.count("no kernel") < 30
    assert found.count("ok") > 1500


def test_what_is_partly_refused_is_partly_written() -> None:
    for name in PARTLY:
        kinds = {
            outcome(op, type(op).samples[n], named)[0]
            for named in (False, True)
            for op, n, named in CASES.get((name, named), ())
        }
        assert {"ok", "refused"} <= kinds, name


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(mlp(), id="mlp"),
        pytest.param(mlp("batch"), id="named"),
        pytest.param(two_outputs(), id="two"),
        pytest.param(computed_gather(), id="gather"),
        pytest.param(convolutional("n"), id="convolutional"),
    ],
)
def test_models_there_and_back(model: onnx.ModelProto) -> None:
    graph = simplified(import_model(model, chosen_options()))
    again = export_onnx(graph)
    onnx.checker.check_model(again, full_check=True)
    rng = np.random.default_rng(0)
    feeds = {
        name: rng.integers(0, 2, _shape(graph, name)).astype(graph.types[name].dtype.numpy)
        for name in graph.inputs
    }
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for found, wanted in zip(run_model(again, feeds), session.run(None, feeds), strict=True):
        assert not difference(found, np.asarray(wanted))


def _shape(graph: Graph, name: str) -> list[int]:
    return [e if isinstance(e, int) else 3 for e in graph.types[name].shape]


def _in_32_bits(graph: Graph) -> Graph:
    types = {
        name: replace(t, dtype=F32) if t.dtype == F64 else t for name, t in graph.types.items()
    }
    build = GraphBuilder(graph.name, graph.dims)
    for name in graph.inputs:
        build.input(name, types[name])
    for node in graph.nodes:
        build.add(node.op, *node.inputs, names=node.outputs)
    return build.build(graph.outputs)


@pytest.mark.parametrize("write", [network, attention, recurrent])
def test_training_graphs(write: Callable[[], Graph]) -> None:
    """The loss and all gradients."""
    graph = _in_32_bits(write())
    wrt = [name for name in graph.inputs if graph.types[name].dtype.is_float]
    whole = simplified(value_and_gradients(graph, graph.outputs[0], wrt))
    model = export_onnx(whole)
    onnx.checker.check_model(model, full_check=True)
    rng = np.random.default_rng(1)
    feeds: dict[str, Array] = {
        name: np.asarray(rng.normal(size=_shape(whole, name)), np.float32) for name in wrt
    }
    feeds |= {name: np.array([5, 3, 1]) for name in set(whole.inputs) - set(wrt)}
    wanted = interpret(whole, feeds)
    for name, found in zip(whole.outputs, run_model(model, feeds), strict=True):
        assert np.any(found)
        assert not difference(found, wanted[name]), name


def test_tables_of_transforms_are_left_out() -> None:
    """A transform of a length that is known at run time only."""
    n, build = Sym("n"), GraphBuilder("spectrum")
    x = build.input("x", TensorType((2, n, 2), F32))
    tables = build.add(FourierTables(n, (n, n, n)))
    graph = build.build([build.emit(FourierTransform(n), x, *tables)])
    model = export_onnx(graph)
    onnx.checker.check_model(model, full_check=True)
    assert [node.op_type for node in model.graph.node].count("DFT") == 1
    signal = np.random.default_rng(0).normal(size=(2, 12, 2)).astype(np.float32)
    (found,) = run_model(model, {"x": signal})
    wanted = np.fft.fft(signal[..., 0] + 1j * signal[..., 1])
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, rtol=1e-4, atol=1e-4)
