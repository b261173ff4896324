"""What the benchmark of GPUs compares with, and models that it takes along; without a GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

pytest.importorskip("onnxruntime")

import onnxruntime

from benchmarks.gpu.cases import TOLERANCES, Case, cases
from benchmarks.gpu.kernels import REPEATED, repeated
from benchmarks.gpu.weights import grown, narrowed, seeded

SMALL = [case for case in cases("small") if case.dtype == "f32"]


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_references_are_what_onnxruntime_computes(case: Case) -> None:
    text, feeds = parser.parse_model(case.text).SerializeToString(), case.feeds()
    session = onnxruntime.InferenceSession(text, providers=["CPUExecutionProvider"])
    found = np.array(session.run(None, feeds)[0])
    assert found.shape == case.result
    assert case.error(feeds, found) < TOLERANCES["f32"]
    found[..., -1, -1] += 1
    assert case.error(feeds, found) > TOLERANCES["f32"]


def test_a_run_that_gives_other_bits_is_wrong() -> None:
    """Which ones the last group of a tile adds first must not show."""
    case = SMALL[0]
    feeds = case.feeds()
    wanted = case.reference(feeds, slice(None)).astype(np.float32)
    off = np.nextafter(wanted, np.float32(0))
    assert repeated(case, feeds, lambda _: {"y": wanted}) < TOLERANCES["f32"]
    later = iter([wanted] * REPEATED + [off])
    assert repeated(case, feeds, lambda _: {"y": next(later)}) == np.inf


def test_all_cases_are_models_with_work_to_do() -> None:
    found = list(cases("all"))
    assert len({case.name for case in found}) == len(found)
    for case in found:
        onnx.checker.check_model(parser.parse_model(case.text))
        assert case.operations > case.bytes / 8 > 0


def test_large_weights_come_from_a_seed(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 18]> g (float[1, 200] x) => (float[1, 200] y)'
    model = parser.parse_model(f"{text} {{ p = MatMul(x, w) y = Add(p, b) }}")
    rng = np.random.default_rng(1)
    w, b = rng.normal(2, 3, (200, 200)).astype("f"), rng.normal(size=200).astype("f")
    model.graph.initializer.extend(
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")]
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, str(path))
    small = seeded(path)
    assert small.ByteSize() < path.stat().st_size / 50
    made, again = (grown(onnx.ModelProto.FromString(small.SerializeToString())) for _ in "12")
    assert made == again
    found, kept = map(numpy_helper.to_array, made.graph.initializer)
    np.testing.assert_array_equal(kept, b)
    assert abs(found.mean() - w.mean()) < 0.1 and abs(found.std() - w.std()) < 0.1
    halves = grown(narrowed(small, onnx.TensorProto.FLOAT16))
    onnx.checker.check_model(halves, full_check=True)
    assert {t.data_type for t in halves.graph.initializer} == {onnx.TensorProto.FLOAT16}
