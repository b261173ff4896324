"""Every operator of the importer, alone, in its forms and versions, against onnxruntime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from conformance.cases import collect
from modelcc.frontends.onnx.handlers import HANDLERS
from modelcc.frontends.onnx.unofficial import UNOFFICIAL
from modelcc.ir.types import Array
from tests.frontends.onnx.onnx_models import assert_agrees, floats, i64, ints, one_node


@dataclass(frozen=True)
class Form:
    """One node to try: operator, operands, attributes, operator set."""

    op: str
    operands: Sequence[Array | np.generic | None]
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    opset: int = 17
    constant: tuple[int, ...] = ()
    outputs: int = 1

    @property
    def id(self) -> str:
        given = ",".join(f"{k}={v}" for k, v in self.attributes.items() if "\n" not in str(v))
        return f"{self.op}-{self.opset}[{given}]"


X = floats(2, 3, 4)
IMAGE = floats(1, 4, 7, 6)
HALF = np.float32(0.5)
NAN = np.array([1.0, np.nan, np.inf, -np.inf], np.float32)
BOOLS = np.array([True, False, True])
F = Form

UNARY = (
    *(F(op, [X]) for op in ("Abs", "Neg", "Sign", "Exp", "Erf", "Tanh", "Sigmoid", "Sin", "Cos")),
    *(F(op, [X]) for op in ("Tan", "Atan", "Sinh", "Cosh", "Asinh", "Floor", "Ceil", "Round")),
    *(F(op, [X / 2.1]) for op in ("Asin", "Acos", "Atanh")),
    *(F(op, [abs(X) + 1]) for op in ("Log", "Sqrt", "Reciprocal", "Acosh")),
    *(F(op, [X]) for op in ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Softplus", "Softsign")),
    *(F(op, [X]) for op in ("HardSigmoid", "ThresholdedRelu", "Identity", "Shrink")),
    F("HardSwish", [X]),
    F("Mish", [X], opset=18),
    F("Gelu", [X], opset=20),
    F("Gelu", [X], {"approximate": "tanh"}, opset=20),
    F("LeakyRelu", [X], {"alpha": 0.2}),
    F("HardSigmoid", [X], {"alpha": 0.1667, "beta": 0.4}),
    F("Shrink", [X], {"bias": 0.5, "lambd": 1.0}),
    F("Not", [BOOLS]),
    F("BitwiseNot", [ints(5)], opset=18),
    F("IsNaN", [NAN]),
    F("IsInf", [NAN]),
    F("IsInf", [NAN], {"detect_negative": 0}),
    F("Dropout", [X]),
    F("Dropout", [X], opset=7),
    F("Dropout", [X, HALF, np.array(False)], constant=(1, 2)),
    F("Clip", [X], {"min": -0.5, "max": 1.0}, opset=7),
    F("Clip", [X, np.float32(-1), HALF], constant=(1, 2)),
    F("Clip", [X, None, HALF], constant=(2,)),
    F("Clip", [X, np.float32(-1), HALF]),
    F("Clip", [ints(6), np.int64(-2), np.int64(3)], constant=(1, 2)),
    *(F("Cast", [X], {"to": t}) for t in (1, 6, 7, 9, 10, 11)),
    F("Cast", [ints(4)], {"to": 1}),
    F("CastLike", [X, ints(1)]),
)

NARY = (
    *(F(op, [X, floats(3, 1, seed=1)]) for op in ("Add", "Sub", "Mul", "Div", "Less", "Greater")),
    *(F(op, [X, X]) for op in ("Equal", "LessOrEqual", "GreaterOrEqual")),
    *(F(op, [BOOLS, BOOLS[::-1].copy()]) for op in ("And", "Or", "Xor")),
    *(F(op, [ints(5), ints(5, seed=1)], opset=18) for op in ("BitwiseAnd", "BitwiseOr")),
    F("BitwiseXor", [ints(5), ints(5, seed=1)], opset=18),
    F("Div", [ints(9, low=-9, high=9), ints(9, low=1, high=4, seed=2)]),
    F("Mod", [ints(9, low=-9, high=9), ints(9, low=1, high=4, seed=2)]),
    F("Mod", [X, X + 3], {"fmod": 1}),
    F("Pow", [abs(X), floats(4)]),
    F("Pow", [X, np.array(2, np.int64)], constant=(1,)),
    F(
        "BitShift",
        [np.array([4, 8], np.uint32), np.array([1, 2], np.uint32)],
        {"direction": "LEFT"},
    ),
    F("BitShift", [np.array([4, 8], np.uint8), np.array([1, 2], np.uint8)], {"direction": "RIGHT"}),
    *(F(op, [X, floats(4, seed=1), floats(3, 1, seed=2)]) for op in ("Sum", "Min", "Max", "Mean")),
    F("Sum", [X]),
    F("Where", [X > 0, X, floats(4)]),
    F("PRelu", [X, floats(3, 1, seed=1)]),
    F("PRelu", [X, floats(1, seed=1)], opset=7),
)

SHAPES = (
    F("Reshape", [X, i64(0, -1)], constant=(1,)),
    F("Reshape", [X, i64(4, 3, 2)], constant=(1,)),
    F("Flatten", [X]),
    F("Flatten", [X], {"axis": -1}),
    F("Flatten", [X], {"axis": 0}, opset=9),
    F("Squeeze", [floats(1, 3, 1)]),
    F("Squeeze", [floats(1, 3, 1)], {"axes": [2]}, opset=11),
    F("Squeeze", [floats(1, 3, 1), i64(-1)], constant=(1,)),
    F("Unsqueeze", [X], {"axes": [0, 4]}, opset=9),
    F("Unsqueeze", [X, i64(-1, 0)], constant=(1,)),
    F("Transpose", [X]),
    F("Transpose", [X], {"perm": [1, 0, 2]}),
    F("Expand", [floats(3, 1), i64(2, 1, 4)], constant=(1,)),
    F("Concat", [X, X, floats(2, 1, 4)], {"axis": 1}),
    F("Concat", [X, X], {"axis": -1}),
    F("Slice", [X], {"starts": [0, 1], "ends": [9, -1], "axes": [1, 2]}, opset=9),
    F("Slice", [X, i64(-3, 0), i64(-1, 99), i64(2, 1)], constant=(1, 2, 3)),
    F("Slice", [X, i64(-1), i64(-99), i64(1), i64(-1)], constant=(1, 2, 3, 4)),
    F("Slice", [X, i64(3), i64(0), i64(2), i64(-2)], constant=(1, 2, 3, 4)),
    F("Slice", [X, i64(0, 0, 1), i64(2, 3, 4)], constant=(1, 2)),
    F("Split", [X], {"axis": 2}, outputs=2),
    F("Split", [X], {"axis": 2, "split": [1, 3]}, opset=11, outputs=2),
    F("Split", [X, i64(1, 2)], {"axis": 1}, constant=(1,), outputs=2),
    F("Split", [floats(7)], {"num_outputs": 3}, opset=18, outputs=3),
    F("Tile", [X, i64(1, 2, 3)], constant=(1,)),
    F("Pad", [X], {"pads": [0, 1, 2, 0, 0, 1], "value": 1.5}, opset=10),
    F("Pad", [X, i64(0, 1, 2, 0, 0, 1), np.float32(2)], constant=(1, 2)),
    F("Pad", [X, i64(0, 1, 2, 0, 0, 1)], {"mode": "edge"}, constant=(1,)),
    F("Pad", [X, i64(0, 1, 2, 0, 0, 1)], {"mode": "reflect"}, constant=(1,)),
    F("Pad", [X, i64(0, -1, 0, 0, 0, -1)], constant=(1,)),
    F("Pad", [X, i64(1, 2), HALF, i64(-1)], opset=18, constant=(1, 2, 3)),
    F("ConstantOfShape", [i64(2, 3)], constant=(0,)),
    F("Shape", [X]),
    F("Shape", [X], {"start": -2, "end": 9}),
    F("Size", [X]),
    F("Trilu", [X]),
    F("Trilu", [X, np.array(-1)], {"upper": 0}, constant=(1,)),
    F("EyeLike", [floats(3, 4)], {"k": 1}),
    F("EyeLike", [floats(3, 4)], {"dtype": 7}),
    F("Range", [np.array(1), np.array(9), np.array(3)], constant=(0, 1, 2)),
    F("Range", [np.array(9), np.array(1), np.array(-3)], constant=(0, 1, 2)),
    F("Range", [np.float32(1), np.float32(2), np.float32(0.3)], constant=(0, 1, 2)),
    F("DepthToSpace", [floats(1, 8, 2, 3)], {"blocksize": 2}),
    F("DepthToSpace", [floats(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    F("SpaceToDepth", [floats(1, 2, 4, 6)], {"blocksize": 2}),
    F("Constant", [], {"value_floats": [1.0, 2.5]}),
    F("Constant", [], {"value_int": 3}),
    F("Constant", [], {"value_float": 0.1}),
    F("Constant", [], {"value_ints": [3, 4]}),
    F("Gather", [X, np.array([[0, 2], [-1, 1]])], {"axis": 1}),
    F("GatherElements", [X, ints(2, 3, 2, low=-4, high=4)], {"axis": 2}),
    F("GatherND", [X, np.array([[0, 1], [1, -1]])]),
    F("GatherND", [X, np.array([[1], [2]])], {"batch_dims": 1}),
    F(
        "OneHot",
        [np.array([0, 2, -1]), np.array(4), np.array([0.5, 2.0], np.float32)],
        constant=(1,),
    ),
    F("OneHot", [np.array([0, 2]), np.array(3), i64(0, 1)], {"axis": 0}, constant=(1,)),
)

_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSumExp", "SumSquare")
REDUCTIONS = (
    *(F(f"Reduce{op}", [X], {"axes": [1]}, opset=11) for op in _REDUCTIONS),
    *(F(f"Reduce{op}", [X, i64(-1, 0)], opset=18, constant=(1,)) for op in _REDUCTIONS),
    F("ReduceLogSum", [abs(X) + 1], {"axes": [1]}),
    F("ReduceMean", [X], {"keepdims": 0}),
    F("ReduceSum", [X, i64()], {"noop_with_empty_axes": 1}, constant=(1,)),
    F("ReduceSum", [X], {"noop_with_empty_axes": 1}),
    F("ArgMax", [X], {"axis": 1}),
    F("ArgMin", [X], {"axis": -1, "keepdims": 0}),
    F("ArgMax", [np.ones((2, 3), np.float32)], {"axis": 1, "select_last_index": 1}),
    F("CumSum", [X, np.array(1)], constant=(1,)),
    F("CumSum", [X, np.array(-1)], {"exclusive": 1, "reverse": 1}, constant=(1,)),
    *(F(op, [X], opset=o) for op in ("Softmax", "LogSoftmax", "Hardmax") for o in (11, 13)),
    F("Softmax", [X], {"axis": 1}),
    F("Softmax", [X], {"axis": 0}, opset=9),
    F("Softmax", [floats(2, 5, 1, 1)], {"axis": 1}, opset=7),
    F("GlobalAveragePool", [IMAGE]),
    F("GlobalMaxPool", [IMAGE]),
    F("GlobalLpPool", [IMAGE]),
)

W = floats(6, 2, 3, 3, seed=1)
CHANNELS = [floats(4, seed=s) for s in (1, 2, 3)]
NETWORK = (
    F("Conv", [IMAGE, W, floats(6)], {"group": 2}),
    F("Conv", [IMAGE, W], {"group": 2, "pads": [1, 0, 2, 1], "strides": [2, 1]}),
    F("Conv", [IMAGE, W], {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    F("Conv", [IMAGE, W], {"group": 2, "auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    F("Conv", [IMAGE, W], {"group": 2, "auto_pad": "VALID", "dilations": [2, 1]}),
    F("Conv", [floats(1, 2, 9), floats(3, 2, 3)], {"pads": [1, 1]}),
    F("Conv", [floats(1, 2, 4, 5, 6), floats(3, 2, 2, 2, 2)]),
    F("ConvTranspose", [IMAGE, floats(4, 3, 3, 3)]),
    F(
        "ConvTranspose",
        [IMAGE, floats(4, 3, 3, 3), floats(3)],
        {"strides": [2, 2], "pads": [1] * 4},
    ),
    F(
        "ConvTranspose",
        [IMAGE, floats(4, 3, 3, 2)],
        {"strides": [2, 3], "output_padding": [1, 0], "group": 2},
    ),
    F("ConvTranspose", [IMAGE, floats(4, 3, 3, 3)], {"strides": [2, 2], "output_shape": [14, 12]}),
    F("ConvTranspose", [IMAGE, floats(4, 3, 3, 3)], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    F("ConvTranspose", [IMAGE, floats(4, 3, 3, 3)], {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    F("MaxPool", [IMAGE], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    F("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "strides": [3, 4], "ceil_mode": 1}, opset=11),
    F("MaxPool", [IMAGE], {"kernel_shape": [2, 2], "dilations": [2, 2]}, opset=11),
    F("MaxPool", [IMAGE], {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    F("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}),
    F("AveragePool", [IMAGE], {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1}),
    F("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "strides": [3, 4], "ceil_mode": 1}),
    F("LpPool", [IMAGE], {"kernel_shape": [2, 2], "p": 3}),
    F("BatchNormalization", [IMAGE, *CHANNELS, abs(CHANNELS[0]) + 1]),
    F("BatchNormalization", [IMAGE, *CHANNELS, abs(CHANNELS[0]) + 1], {"epsilon": 0.1}, opset=9),
    F("LayerNormalization", [X, floats(4), floats(4)]),
    F("LayerNormalization", [X, floats(3, 4)], {"axis": 1, "epsilon": 1e-3}),
    F("InstanceNormalization", [IMAGE, floats(4), floats(4)]),
    F("GroupNormalization", [IMAGE, floats(4), floats(4)], {"num_groups": 2}, opset=21),
    F("RMSNormalization", [X, floats(4)], opset=23),
    F("MeanVarianceNormalization", [IMAGE], opset=13),
    F("LpNormalization", [X], {"axis": 1}),
    F("LpNormalization", [X], {"p": 1}),
    F("LRN", [IMAGE], {"size": 3, "alpha": 0.1, "beta": 0.5, "bias": 2.0}),
    F("MatMul", [X, floats(4, 5)]),
    F("MatMul", [X, floats(2, 4, 5)]),
    F("MatMul", [floats(4), floats(4, 5)]),
    F("Gemm", [floats(3, 4), floats(4, 5), floats(5)]),
    F("Gemm", [floats(4, 3), floats(5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    F("Gemm", [floats(3, 4), floats(4, 5), floats(3, 1)], {"beta": 0.25}, opset=9),
    F("Einsum", [X, floats(4, 5)], {"equation": "bij, jk -> bik"}),
    F("Einsum", [X, floats(4, 5)], {"equation": "bij,jk"}),
    F("Einsum", [X, X], {"equation": "...i,...i"}),
)

_SIZES = i64(1, 4, 10, 9)
_SCALES = np.array([1, 1, 2, 1.5], np.float32)
RESIZES = (
    F("Upsample", [IMAGE], {"scales": [1.0, 1.0, 2.0, 3.0]}, opset=7),
    F("Upsample", [IMAGE, _SCALES], {"mode": "linear"}, opset=9, constant=(1,)),
    F("Resize", [IMAGE, _SCALES], opset=10, constant=(1,)),
    F("Resize", [IMAGE, None, _SCALES], opset=13, constant=(2,)),
    F("Resize", [IMAGE, None, None, _SIZES], {"mode": "linear"}, opset=13, constant=(3,)),
    F(
        "Resize",
        [IMAGE, None, _SCALES],
        {
            "mode": "nearest",
            "coordinate_transformation_mode": "asymmetric",
            "nearest_mode": "floor",
        },
        constant=(2,),
    ),
    F(
        "Resize",
        [IMAGE, None, None, _SIZES],
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        constant=(3,),
    ),
    F("Resize", [IMAGE, None, _SCALES], {"mode": "cubic"}, opset=13, constant=(2,)),
    F("Resize", [IMAGE, None, None, i64(14, 6)], {"axes": [2, 3]}, opset=19, constant=(3,)),
)

BOXES = np.array([[0, 0, 0, 7, 5], [0, 2, 1, 3, 6]], np.float32)
REGIONS = (
    F("MaxRoiPool", [floats(1, 2, 7, 9), BOXES], {"pooled_shape": [2, 3]}),
    F(
        "MaxRoiPool",
        [floats(1, 2, 7, 9), BOXES],
        {"pooled_shape": [2, 2], "spatial_scale": 0.5},
    ),
)

BYTES = ints(1, 2, 5, 5, low=0, high=255).astype(np.uint8)
WEIGHTS = ints(3, 2, 3, 3, low=-127, high=127, seed=1).astype(np.int8)
ZERO, SCALE = np.uint8(120), np.float32(0.02)
QUANTISED = (
    F("QuantizeLinear", [X, SCALE]),
    F("QuantizeLinear", [X, SCALE, ZERO], opset=10),
    F("QuantizeLinear", [X, floats(3, low=0.01, high=0.1), np.zeros(3, np.int8)], {"axis": 1}),
    F("DequantizeLinear", [BYTES, SCALE, ZERO]),
    F("DequantizeLinear", [WEIGHTS, floats(3, low=0.01, high=0.1)], {"axis": 0}),
    F("DynamicQuantizeLinear", [X], outputs=3),
    F("MatMulInteger", [BYTES[0, 0], WEIGHTS[:, 0, 0, :1].repeat(5, 1).T.copy(), ZERO]),
    F("ConvInteger", [BYTES, WEIGHTS.astype(np.uint8), ZERO], {"pads": [1, 1, 1, 1]}),
    F("QLinearMatMul", [BYTES[0, 0], SCALE, ZERO, BYTES[0, 1], SCALE, ZERO, np.float32(2), ZERO]),
    F(
        "QLinearConv",
        [BYTES, SCALE, ZERO, WEIGHTS, SCALE, np.int8(0), np.float32(0.5), ZERO],
        {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
        constant=(1, 2, 3, 4, 5, 6, 7),
    ),
)

SEQUENCE = floats(4, 2, 3)


def layer(gates: int, directions: int = 1) -> list[Array | None]:
    """Sequence, weights, recurrent weights and bias for a hidden size of 5."""
    rows = gates * 5
    shapes = ((directions, rows, 3), (directions, rows, 5), (directions, 2 * rows))
    return [
        SEQUENCE,
        *(floats(*shape, low=-0.5, high=0.5, seed=i) for i, shape in enumerate(shapes)),
    ]


LENGTHS, STATE = np.array([4, 2], np.int32), floats(1, 2, 5)
RECURRENT = (
    F("RNN", layer(1), {"hidden_size": 5}, outputs=2),
    F("RNN", layer(1, 2), {"hidden_size": 5, "direction": "bidirectional"}, outputs=2),
    F("GRU", [*layer(3), LENGTHS, STATE], {"hidden_size": 5}, outputs=2),
    F("GRU", layer(3), {"hidden_size": 5, "linear_before_reset": 1, "direction": "reverse"}),
    F("LSTM", [*layer(4), LENGTHS, STATE, STATE, floats(1, 15)], {"hidden_size": 5}, outputs=3),
    F("LSTM", layer(4)[:3], {"hidden_size": 5, "clip": 0.3}, opset=7, outputs=3),
    F(
        "LSTM",
        layer(4),
        {"hidden_size": 5, "activations": ["hardsigmoid", "relu", "tanh"]},
        outputs=3,
    ),
)

FORMS = (*UNARY, *NARY, *SHAPES, *REDUCTIONS, *NETWORK, *RESIZES, *REGIONS, *QUANTISED, *RECURRENT)


@pytest.mark.parametrize("form", FORMS, ids=[f.id for f in FORMS])
def test_form(form: Form) -> None:
    model, feeds = one_node(
        form.op, form.operands, form.opset, form.constant, form.outputs, **form.attributes
    )
    assert_agrees(model, feeds)


def test_every_handler_is_tried() -> None:
    """Here, or by a case of the standard's own suite."""
    cases = [case.load().model for case in collect() if case.kind in ("node", "simple")]
    standard = {node.op_type for model in cases for node in model.graph.node}
    untried = {name for domain, name in HANDLERS if not domain} - {f.op for f in FORMS}
    untried -= set(UNOFFICIAL)  # by test_operators
    elsewhere = {"If", "Optional", "Upsample"}
    random = {"Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform"}
    assert untried - standard <= elsewhere | random
