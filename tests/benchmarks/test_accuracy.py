"""The accuracy benchmark: inputs, bars, and a crash that is a row."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from small_models import mlp

from benchmarks.accuracy.__main__ import examine
from benchmarks.accuracy.check import check, relative_errors
from benchmarks.accuracy.results import Found, markdown, rows, size_rows
from benchmarks.accuracy.signals import bytes_of_text, image
from benchmarks.accuracy.subjects import Subject, light, zoo


def folder_with_mlp(folder: Path) -> Path:
    onnx.save(mlp("batch"), folder / "mlp_dynamic.onnx")
    fill = {"mean": 0.0, "deviation": 1.0}
    inputs = [{"name": "x", "shape": ["batch", 6], "dtype": "float32", "fill": fill}]
    (folder / "index.json").write_text(json.dumps({"mlp_dynamic": {"inputs": inputs}}))
    return folder


def test_a_model_is_checked_at_several_sizes(tmp_path: Path) -> None:
    (subject,) = zoo(folder_with_mlp(tmp_path))
    checked, outputs = check(subject, "llvm", sizes=3)
    assert [size.shapes["x"] for size in checked.sizes] == [(1, 6), (2, 6), (5, 6)]
    assert all(size.worst < 1e-5 for size in checked.sizes)
    assert [found["y"].shape for found in outputs] == [(1, 3), (2, 3), (5, 3)]


def test_a_process_that_fails_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text(json.dumps({"broken": {"inputs": []}}))
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    found = examine("zoo", Subject(tmp_path / "broken.onnx", {}), "llvm", 1, 60)
    assert found.result is None and found.failures[0].startswith("ended with ")
    assert "broken" in markdown([found])


def test_errors_are_relative_and_never_hide() -> None:
    wanted = {"a": np.array([0.0, 4.0], np.float32), "b": np.ones(2, np.float32)}
    got = {"a": np.array([1.0, 4.0], np.float32)}
    assert relative_errors(got, wanted) == {"a": 0.25, "b": float("inf")}
    got["b"] = np.ones(3, np.float32)
    assert relative_errors(got, wanted)["b"] == float("inf")


def test_bars() -> None:
    size = {"shapes": {"x": [1, 6]}, "outputs": {"y": 2e-4}, "milliseconds": 2.0}
    made = {"backend": "llvm", "cold": 11.0, "cached": 0.1, "arena": 120, "bound": 100}
    result = {"backends": [{**made, "sizes": [size]}], "difference": None, "static": 1.0}
    found = Found("resnet50", "zoo", result)
    assert [text.split()[1] for text in found.failures] == ["error", "arena", "cold"]
    assert Found("vgg16", "zoo", result).failures == found.failures[:2]
    assert len(list(rows(found))) == 1
    assert next(iter(size_rows(found)))[-1] == "2.00"


def test_inputs_are_what_models_expect() -> None:
    generator = np.random.default_rng(0)
    picture = image((2, 3, 48, 96), generator)
    assert picture.shape == (2, 3, 48, 96) and picture.min() < -0.7 and picture.max() > 0.4
    text = bytes_of_text((3, 2048), generator)
    assert text.min() > 0 and text.max() == 256 and len(np.unique(text, axis=0)) == 3
    assert len(list(light())) == 9
