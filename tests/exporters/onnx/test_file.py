"""Models as files, with constants beside them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

import modelcc
from modelcc.exporters.onnx import export_onnx, write_onnx
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.types import F32, TensorType
from modelcc.ops.arithmetic import Cast
from modelcc.ops.matmul import MatMul
from tests.small_models import mlp


def heavy() -> Graph:
    """A product by 16 KB of weights, and one by 4-bit ones."""
    rng = np.random.default_rng(0)
    build = GraphBuilder("heavy")
    x = build.input("x", TensorType((2, 64), F32))
    y = build.emit(MatMul(), x, build.constant(rng.normal(size=(64, 64)).astype(np.float32)))
    few = build.constant(rng.integers(-8, 8, (64, 64)).astype(ml_dtypes.int4))
    return build.build([build.emit(MatMul(), y, build.emit(Cast(F32), few), name="y")])


@pytest.mark.parametrize("most", [1 << 20, 1000])
def test_constants_in_and_beside_the_file(tmp_path: Path, most: int) -> None:
    path = tmp_path / "heavy.onnx"
    files = write_onnx(heavy(), path, most)
    beside = [tmp_path / "heavy.onnx.data"] if most == 1000 else []
    assert list(files) == [path, *beside]
    assert path.stat().st_size < 4000 or not beside
    onnx.checker.check_model(path, full_check=True)
    x = np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32)
    results = [
        np.asarray(onnxruntime.InferenceSession(model).run(None, {"x": x})[0])
        for model in (str(path), export_onnx(heavy()).SerializeToString())
    ]
    np.testing.assert_array_equal(results[0], results[1])


def test_the_python_function(tmp_path: Path) -> None:
    source, copy = tmp_path / "net.onnx", tmp_path / "copy.onnx"
    source.write_bytes(mlp("batch").SerializeToString())
    assert modelcc.export_onnx(source, copy) == (copy,)
    x = np.random.default_rng(1).normal(size=(5, 6)).astype(np.float32)
    found, wanted = (
        np.asarray(onnxruntime.InferenceSession(str(path)).run(None, {"x": x})[0])
        for path in (copy, source)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert modelcc.export_onnx(modelcc.import_model(source, dims={"batch": 2}), copy) == (copy,)
    dims = onnx.load(copy).graph.input[0].type.tensor_type.shape.dim
    assert dims[0].dim_value == 2


def test_the_model_that_is_read_stays(tmp_path: Path) -> None:
    source = tmp_path / "net.onnx"
    source.write_bytes(mlp().SerializeToString())
    with pytest.raises(modelcc.ModelError, match="written over the model that is read"):
        modelcc.export_onnx(source, source)
