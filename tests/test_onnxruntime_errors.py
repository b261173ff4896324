"""What the results of emulated models are held against is rounded where it says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime_errors import TOLERANCE, judged, rounded

from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.runtime.session import Session


def model_of(nodes: Sequence[onnx.NodeProto], last: str, added: float) -> onnx.ModelProto:
    """From ``x``, with a weight ``w`` and a number ``n``."""
    weight = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32) / 2
    number = np.full(1, added, np.float32)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, 16)) for name in ("x", last)
    ]
    given = [numpy_helper.from_array(array, name) for array, name in ((weight, "w"), (number, "n"))]
    graph = helper.make_graph(nodes, "model", values[:1], values[1:], given)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def products() -> onnx.ModelProto:
    """Three of them, to each of which 1 is added."""
    names = ["x", "y0", "y1", "y2"]
    nodes = [
        node
        for before, after in pairwise(names)
        for node in (
            helper.make_node("MatMul", [before, "w"], [f"{after}.product"]),
            helper.make_node("Add", [f"{after}.product", "n"], [after]),
        )
    ]
    return model_of(nodes, names[-1], 1.001)


def there_and_back(far: float) -> onnx.ModelProto:
    """``(x w + far) - far``, of which half precision keeps little."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Add", ["product", "n"], ["there"]),
        helper.make_node("Sub", ["there", "n"], ["back"]),
    ]
    return model_of(nodes, "back", far)


def halves(kind: type) -> Callable[[Array], Array]:
    return lambda array: array.astype(kind).astype(np.float32)


@pytest.mark.parametrize(("precision", "kind"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_every_result_is_rounded(precision: str, kind: type) -> None:
    model = products()
    w, one = (numpy_helper.to_array(i) for i in model.graph.initializer)
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
    half = halves(kind)
    wanted = half(x)
    for _ in range(3):
        product = wanted.astype(np.float64) @ half(w).astype(np.float64)
        wanted = half(half(product.astype(np.float32)) + half(one))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    text = rounded(model, precision).SerializeToString()
    engine = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
    (found,) = engine.run(None, {"x": x})
    np.testing.assert_array_equal(np.asarray(found), wanted)


class Halves:
    """A session that rounds all to f16, ``times`` as far from the results in f32."""

    def __init__(self, model: Path, times: float) -> None:
        text = rounded(onnx.load(model), "f16").SerializeToString()
        self._engines = [onnxruntime.InferenceSession(one, providers=["CPUExecutionProvider"])
                         for one in (model, text)]  # fmt: skip
        self._times = times

    def run(self, feeds: dict[str, Array]) -> dict[str, Array]:
        whole, half = (np.asarray(engine.run(None, feeds)[0]) for engine in self._engines)
        return {self._engines[0].get_outputs()[0].name: whole + self._times * (half - whole)}


@pytest.mark.parametrize(
    ("far", "times", "passes", "known"),
    [
        (1.0, 1.0, True, False),
        (1e3, 1.0, True, True),
        (1e3, 1.9, True, True),
        (1e3, 2.1, False, True),
        (7e4, 1.0, False, True),
    ],
)
def test_results_may_have_twice_the_error_of_onnx_runtime(
    far: float, times: float, passes: bool, known: bool, tmp_path: Path
) -> None:
    """Where they are beyond what is usual; of one that is infinite nothing follows."""
    path = tmp_path / "model.onnx"
    onnx.save(there_and_back(far), path)
    session = cast(Session, Halves(path, times))
    found = judged(path, session, Options(precision="f16"))
    assert found.passes == passes
    assert (found.peer is not None) == known
    assert (found.bar == TOLERANCE["f16"]) == (not known or far > 1e3)
    assert ("ONNX Runtime" in str(found)) == known
