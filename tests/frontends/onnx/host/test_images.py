"""ImageDecoder: a step of the runtime before compiled code, against ONNX's own cases and Pillow."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import parser
from onnx.backend.test.case.test_case import TestCase

import modelcc
from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.runtime.errors import InputError, RunError
from tests.frontends.onnx.standard_cases import cases_of

image = pytest.importorskip("PIL.Image")


def _model(body: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : 20]>\nmain {body}')


MEAN = """(uint8[n] stream) => (float[c] mean, uint8[h, w, c] pixels) {
  pixels = ImageDecoder<pixel_format = "BGR">(stream)
  f = Cast<to = 1>(pixels)
  axes = Constant<value_ints = [0, 1]>()
  mean = ReduceMean<keepdims = 0>(f, axes)
}"""


def _encoded(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "PNG")
    return np.frombuffer(file.getvalue(), np.uint8)


@pytest.mark.parametrize("case", cases_of("image_decoder"), ids=lambda c: c.name)
def test_case_of_the_standard(case: TestCase) -> None:
    assert case.model is not None and case.data_sets is not None
    net = modelcc.compile(case.model, threads=1, cache=None)
    for inputs, (expected,) in case.data_sets:
        np.testing.assert_array_equal(net(*inputs), expected)


def test_images_of_any_size_go_on_into_compiled_code(tmp_path: Path) -> None:
    modelcc.compile(_model(MEAN), threads=1, cache=None).save(tmp_path / "net.mcc")
    net = modelcc.load(tmp_path / "net.mcc")
    rng = np.random.default_rng(1)
    for shape in ((4, 7, 3), (9, 2, 3)):
        pixels = rng.integers(0, 256, shape, np.uint8)
        mean, decoded = net(_encoded(pixels))
        np.testing.assert_array_equal(decoded, pixels[:, :, ::-1])
        np.testing.assert_allclose(mean, decoded.mean((0, 1)), rtol=1e-5)


def test_what_cannot_be_decoded_is_empty_and_the_report_names_the_step() -> None:
    net = modelcc.compile(_model(MEAN), threads=1, cache=None)
    assert net(np.arange(50, dtype=np.uint8))[1].shape == (0, 0, 3)
    assert "decode_image(stream)" in repr(net.report())


def test_other_arguments_are_refused() -> None:
    net = modelcc.compile(_model(MEAN), threads=1, cache=None)
    with pytest.raises(InputError, match=r"an encoded image is u8\[bytes\], not float32\[3\]"):
        net(np.zeros(3, np.float32))


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    net = modelcc.compile(_model(MEAN), threads=1, cache=None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(RunError, match=r"pip install 'modelcc\[images\]'"):
        net(np.zeros(3, np.uint8))


def test_only_what_the_caller_gives_can_be_decoded() -> None:
    body = MEAN.replace("(stream)\n", "(half)\n", 1).replace(
        "{", "{ half = Concat<axis = 0>(stream, stream)", 1
    )
    with pytest.raises(UnsupportedModel, match="on what the caller gives"):
        modelcc.compile(_model(body), threads=1, cache=None)
