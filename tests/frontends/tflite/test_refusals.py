"""What is no model, or not one that modelcc can import: clear errors, never a crash."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("tflite")

from modelcc.frontends.kit.errors import UnsupportedModel
from modelcc.frontends.tflite import import_tflite
from modelcc.ir.errors import ModelError
from tests.frontends.tflite.files import Op, Subgraph, T, constant, model, one

F = "float32"


def test_other_files_and_versions() -> None:
    with pytest.raises(ModelError, match="no TFLite model of schema version 3"):
        import_tflite(b"something else")
    with pytest.raises(ModelError, match="schema version 2"):
        import_tflite(model([Subgraph([], [], [], [])], version=2))


def test_all_operators_that_there_are_not_are_listed() -> None:
    tensors = [T((2,), F)] * 5
    chain = [Op("NEG", [0], [1]), Op("SKIP_GRAM", [1], [2]), Op("Mine", [1], [3], custom=b"x"),
             Op("LSH_PROJECTION", [2], [4])]  # fmt: skip
    with pytest.raises(UnsupportedModel) as error:
        import_tflite(model([Subgraph(tensors, [0], [4], chain)]))
    names = [node.operator for node in error.value.nodes]
    assert names == ["SKIP_GRAM", "Mine", "LSH_PROJECTION"]
    assert "1 SKIP_GRAM 't2'" in str(error.value) and "custom operator" in str(error.value)


def test_tensors_without_scales_and_bad_ones() -> None:
    plain = T((2, 3), "int8", 0.1)
    missing = one("ADD", [plain, T((2, 3), "int8"), plain], "AddOptions")
    with pytest.raises(ModelError, match="0 ADD 't2': operand 1"):
        import_tflite(missing)
    outside = one("ADD", [plain, T((2, 3), "int8", 0.1, 200), plain], "AddOptions")
    with pytest.raises(ModelError, match="zero point 200"):
        import_tflite(outside)
    scales = constant(np.zeros((2, 3)), "int8", scale=[0.1, 0.2, 0.3], axis=0)
    with pytest.raises(ModelError, match="3 scales"):
        import_tflite(one("ADD", [plain, scales, plain], "AddOptions"))


def test_constants_that_are_too_short() -> None:
    short = T((2, 3), F, data=np.zeros(5, np.float32))
    with pytest.raises(ModelError, match="5 elements for the shape"):
        import_tflite(one("ADD", [T((2, 3), F), short, T((2, 3), F)], "AddOptions"))


def test_values_that_nothing_computes() -> None:
    tensors = [T((2,), F)] * 3
    with pytest.raises(ModelError, match="'t1' is read before"):
        import_tflite(model([Subgraph(tensors, [0], [2], [Op("ADD", [0, 1], [2], "AddOptions")])]))


def test_damaged_files_give_errors_alone() -> None:
    """Bytes flipped anywhere: a model, or what is wrong with it."""
    tensors = [
        T((1, 4, 4, 2), "int8", 0.1), constant(np.ones((3, 2, 2, 2)), "int8", scale=0.1),
        constant([1, 2, 3], "int32"), T((1, 4, 4, 3), "int8", 0.1), constant([1, 48]),
        T((1, 48), "int8", 0.1), T((1, 48), "int8", 1 / 256, -128),
    ]  # fmt: skip
    strides = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    chain = [
        Op("CONV_2D", [0, 1, 2], [3], "Conv2DOptions", strides), Op("RESHAPE", [3, 4], [5]),
        Op("SOFTMAX", [5], [6], "SoftmaxOptions", {"Beta": 1.0}),
    ]  # fmt: skip
    data = model([Subgraph(tensors, [0], [6], chain)])
    rng = np.random.default_rng(0)
    failed = 0
    for _ in range(300):
        broken = bytearray(data)
        for place in rng.integers(8, len(data), rng.integers(1, 4)):
            broken[place] = rng.integers(0, 256)
        try:
            import_tflite(bytes(broken))
        except ModelError:
            failed += 1
    for end in range(0, len(data), 37):
        with pytest.raises(ModelError):
            import_tflite(data[:end])
    assert failed > 50
