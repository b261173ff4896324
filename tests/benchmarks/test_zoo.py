"""Building and exporting a zoo model, where torch and its companions are installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

NEEDED = ("torch", "torchvision", "timm", "transformers", "onnxscript", "onnxruntime")

pytestmark = [
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in NEEDED),
        reason="needs the packages of the bench extra",
    ),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize("batch", [1, None])
def test_export_agrees_with_torch(tmp_path: Path, batch: int | None) -> None:
    build = pytest.importorskip("benchmarks.zoo.build")
    export = pytest.importorskip("benchmarks.zoo.export")
    catalogue = pytest.importorskip("benchmarks.zoo.catalogue")
    model = catalogue.find("ds_cnn")
    module = build.build(model)
    path = tmp_path / "ds_cnn.onnx"
    export.export(model, module, path, batch)
    assert export.check(model, module, path, batch) < 1e-5
    entry = export.describe(model, path, batch)
    assert entry["operators"]["Conv"] == 9
    assert entry["inputs"][0]["shape"] == ["batch" if batch is None else 1, 1, 49, 10]
