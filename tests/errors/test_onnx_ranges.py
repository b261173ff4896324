"""Nodes whose attributes or constants are out of range: refused here as by onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modelcc.frontends.onnx import import_onnx
from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from tests.frontends.onnx.onnx_models import assert_agrees, floats, i64, one_node, run_onnxruntime

X, FILTER, TURNED = floats(2, 4, 5, 6), floats(6, 4, 3, 3), floats(4, 6, 3, 3)
ROW, BOX = floats(1, 6, 4)[0, 0], np.ones((1, 4), np.float32)
TRUE = np.array(True)
Broken = tuple[str, list[Array | None], dict[str, Any], int]


def b(op: str, *operands: Array | None, opset: int = 18, **attributes: Any) -> Broken:
    return op, [X, *operands], attributes, opset


AXES = (
    *(b(op, axis=a) for op in ("Softmax", "ArgMax", "Hardmax") for a in (4, -5)),
    *(b("Concat", X, axis=a) for a in (4, -5)),
    *(b("Gather", i64(0), axis=a) for a in (4, -5)),
    *(b("Flatten", axis=a) for a in (5, -5)),
    *(b("Slice", i64(0), i64(1), i64(a)) for a in (4, -5)),
    *(b("ReduceSum", i64(a)) for a in (4, -5)),
    *(b("Unsqueeze", i64(a)) for a in (5, -6)),
    *(b("Transpose", perm=p) for p in ([0, 1, 2], [0, 0, 1, 2], [0, 1, 2, 4])),
    b("Slice", i64(0, 0), i64(1, 1), i64(1, 1)),
    b("Unsqueeze", i64(0, 0)),
)
CONVOLVED: tuple[dict[str, Any], ...] = (
    {"strides": [0, 1]}, {"strides": [1]}, {"dilations": [-1, 1]}, {"pads": [1, 1]},
    {"pads": [-1, 0, 0, 0]}, {"group": 3}, {"group": 0}, {"kernel_shape": [2, 2]},
    {"auto_pad": "BAD"},
)  # fmt: skip
WIDENED: tuple[dict[str, Any], ...] = (
    {"output_padding": [5, 5]}, {"output_padding": [-1, 0]}, {"output_shape": [50, 50]},
    {"pads": [1, 1, 1, 1], "auto_pad": "SAME_UPPER"},
)  # fmt: skip
WINDOWS = (
    *(
        b(op, weights, **given)
        for op, weights in (("Conv", FILTER), ("ConvTranspose", TURNED))
        for given in CONVOLVED
    ),
    *(
        b("ConvTranspose", TURNED, **given)
        for given in WIDENED
    ),
    *(
        b(op, opset=19, **{"kernel_shape": [2, 2], **given})
        for op in ("MaxPool", "AveragePool", "LpPool")
        for given in (
            {"kernel_shape": [0, 2]}, {"kernel_shape": [2]}, {"pads": [2, 2, 2, 2]},
            {"pads": [-1, 0, 0, 0]}, {"strides": [0, 1]},
        )
    ),
)  # fmt: skip
SIZES = (
    *(b("DepthToSpace", blocksize=n) for n in (0, -1, 3, 100)),
    *(b("SpaceToDepth", blocksize=n) for n in (0, -1, 100)),
    *(b("GroupNormalization", ROW, ROW, num_groups=n, opset=21) for n in (0, -1, 3)),
    *(b("Reshape", i64(*s)) for s in ((-2, 240), (-1, -1), (7, -1), (0, 0, 0, 0, 0))),
    b("Reshape", np.array([[240]])),
    b("Tile", i64(1, 1)),
    b("Tile", i64(1, 1, 1, -1)),
    b("Expand", i64(3, 1, 1, 1)),
    *(b("TopK", i64(k)) for k in (7, -1)),
    b("Split", i64(2), num_outputs=1),
    b("Split", i64(1)),
    b("Upsample", np.array([1, 1, 0.5, 1], np.float32), opset=9),
    b("Resize", None, np.array([1, 1, 0, 1], np.float32)),
    b("MaxRoiPool", np.ones((1, 5), np.float32), pooled_shape=[0, 1]),
    b("RoiAlign", BOX, i64(0), sampling_ratio=-1),
)
OTHERS = (
    b("DepthToSpace", blocksize=2, mode="BAD"),
    b("Gelu", approximate="bad", opset=20),
    b("Mod", X, fmod=0),
    b("Mod", X, opset=27),
    b("Clip", np.ones(2, np.float32)),
    b("Pad", i64(*[0] * 8), mode="BAD"),
    *(b("Dropout", np.array(r, np.float32), TRUE) for r in (1.5, -0.5)),
    b("Resize", None, np.array([1, 1, 2, 2], np.float32), mode="bad"),
)
BROKEN = (*AXES, *WINDOWS, *SIZES, *OTHERS)


@pytest.mark.parametrize(("op", "operands", "attributes", "opset"), BROKEN)
def test_what_has_no_meaning_is_refused(
    op: str, operands: list[Array | None], attributes: dict[str, Any], opset: int
) -> None:
    outputs = 2 if op == "TopK" else 1
    fixed = range(1, len(operands))
    model, feeds = one_node(op, operands, opset, tuple(fixed), outputs, **attributes)
    with pytest.raises(Exception, match=r"ONNXRuntimeError|Error"):
        run_onnxruntime(model, feeds)
    with pytest.raises(ModelError, match=f"{op}#0"):
        import_onnx(model)


@pytest.mark.parametrize("op", ["ReduceSum", "Squeeze"])
def test_axes_that_are_repeated_count_once(op: str) -> None:
    assert_agrees(*one_node(op, [floats(2, 1, 3), i64(1, -2)], 18, (1,)))


def test_remainders_of_floats_have_the_sign_of_the_divisor_since_operator_set_28() -> None:
    special = np.array([0.0, -0.0, 2.5, -2.5, np.inf, -np.inf, np.nan], np.float32)
    pairs = [np.ascontiguousarray(a) for a in np.meshgrid(special, special)]
    assert_agrees(*one_node("Mod", [X, floats(2, 4, 5, 6)[::-1].copy()], 28))
    assert_agrees(*one_node("Mod", pairs, 28))
