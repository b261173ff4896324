"""Operators whose operands determine sizes or positions of accesses: models and valid inputs.

Symbolic extents in a model may have any value at run time, including 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx.parser
from onnx import ModelProto


@dataclass(frozen=True)
class Case:
    """One operator: its model in ONNX's text form, valid inputs, and the names of those whose
    elements determine accesses."""

    name: str
    text: str
    feeds: Mapping[str, Any]
    deciders: tuple[str, ...]
    opset: int = 22

    @property
    def model(self) -> ModelProto:
        """The model, parsed."""
        head = f'<ir_version: 10, opset_import: ["" : {self.opset}, "ai.onnx.ml" : 3]>'
        return onnx.parser.parse_model(f"{head} g {self.text}")


def ramp(*shape: int) -> Any:
    """Distinct numbers around 0."""
    return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def integers(*values: Any) -> Any:
    """i64[len(values)]"""
    return np.array(values, np.int64)


def floats(*values: Any) -> Any:
    """f32[len(values)]"""
    return np.array(values, np.float32)


def scalar(value: Any, dtype: type = np.int64) -> Any:
    """A scalar array."""
    return np.array(value, dtype)


IMAGE = ramp(1, 2, 5, 7)


def _resizes() -> list[Case]:
    modes = ("nearest", "linear", "cubic")
    scale = '(float[n,c,h,w] x, float[4] s) => (float[a,b,d,e] y) { y = Resize<mode="%s">(x, , s) }'
    size = (
        '(float[n,c,h,w] x, int64[4] s) => (float[a,b,d,e] y) { y = Resize<mode="%s">(x, , , s) }'
    )
    scales, sizes = floats(1, 1, 2, 0.5), integers(1, 2, 8, 3)
    return [
        *(Case(f"Resize {m} scales", scale % m, {"x": IMAGE, "s": scales}, ("s",)) for m in modes),
        *(Case(f"Resize {m} sizes", size % m, {"x": IMAGE, "s": sizes}, ("s",)) for m in modes),
        Case(
            "Resize crop",
            "(float[n,c,h,w] x, float[8] r, int64[4] s) => (float[a,b,d,e] y) { y = "
            'Resize<mode="linear", coordinate_transformation_mode="tf_crop_and_resize">'
            "(x, r, , s) }",
            {"x": IMAGE, "r": floats(0, 0, 0.1, 0, 1, 1, 0.8, 1), "s": sizes},
            ("r", "s"),
        ),
    ]


def _pads() -> list[Case]:
    text = '(float[h,w] x, int64[4] p) => (float[a,b] y) { y = Pad<mode="%s">(x, p) }'
    feeds = {"x": ramp(4, 5), "p": integers(1, 2, 0, 3)}
    modes = ("constant", "edge", "reflect", "wrap")
    return [Case(f"Pad {mode}", text % mode, feeds, ("p",)) for mode in modes]


def _shapes() -> list[Case]:
    x = {"x": ramp(4, 5)}
    return [
        Case(
            "Tile",
            "(float[h,w] x, int64[2] r) => (float[a,b] y) { y = Tile(x, r) }",
            {**x, "r": integers(2, 3)},
            ("r",),
        ),
        Case(
            "Expand",
            "(float[h,w] x, int64[3] s) => (float[a,b,c] y) { y = Expand(x, s) }",
            {**x, "s": integers(2, 1, 5)},
            ("s",),
        ),
        Case(
            "Reshape",
            "(float[h,w] x, int64[2] s) => (float[a,b] y) { y = Reshape(x, s) }",
            {**x, "s": integers(2, 10)},
            ("s",),
        ),
        Case(
            "Slice",
            "(float[h,w] x, int64[1] s, int64[1] e, int64[1] a, int64[1] t) => (float[p,q] y) "
            "{ y = Slice(x, s, e, a, t) }",
            {**x, "s": integers(1), "e": integers(4), "a": integers(1), "t": integers(2)},
            ("s", "e", "a", "t"),
        ),
        Case(
            "Split",
            "(float[h,w] x, int64[2] s) => (float[p,w] y, float[q,w] z) { y, z = Split(x, s) }",
            {**x, "s": integers(1, 3)},
            ("s",),
        ),
        Case(
            "SplitToSequence",
            "(float[h,w] x, int64[2] s) => (float[p,w] y) "
            "{ l = SplitToSequence(x, s) y = ConcatFromSequence<axis=0>(l) }",
            {**x, "s": integers(1, 3)},
            ("s",),
        ),
        Case(
            "ConstantOfShape",
            "(int64[2] s) => (float[a,b] y) { y = ConstantOfShape(s) }",
            {"s": integers(2, 3)},
            ("s",),
        ),
        Case(
            "Range",
            "(int64 s, int64 e, int64 d) => (int64[a] y) { y = Range(s, e, d) }",
            {"s": scalar(1), "e": scalar(9), "d": scalar(2)},
            ("s", "e", "d"),
        ),
        Case(
            "Range of floats",
            "(float s, float e, float d) => (float[a] y) { y = Range(s, e, d) }",
            {name: scalar(v, np.float32) for name, v in (("s", 1), ("e", 9), ("d", 2))},
            ("s", "e", "d"),
        ),
        Case(
            "CenterCropPad",
            "(float[h,w] x, int64[2] s) => (float[a,b] y) { y = CenterCropPad(x, s) }",
            {**x, "s": integers(2, 8)},
            ("s",),
        ),
        Case(
            "Trilu",
            "(float[h,w] x, int64 k) => (float[h,w] y) { y = Trilu(x, k) }",
            {**x, "k": scalar(1)},
            ("k",),
        ),
        Case(
            "ReduceSum",
            "(float[h,w] x, int64[1] a) => (float[p,q] y) { y = ReduceSum(x, a) }",
            {**x, "a": integers(1)},
            ("a",),
        ),
        Case(
            "CumSum",
            "(float[h,w] x, int64 a) => (float[h,w] y) { y = CumSum(x, a) }",
            {**x, "a": scalar(1)},
            ("a",),
        ),
        Case(
            "Loop",
            "(int64 k, float[n] x) => (float[n] y, float[m,n] z) { c = Constant<value = bool {1}>()"
            " y, z = Loop(k, c, x) <body = b (int64 i, bool g, float[n] v) => "
            "(bool o, float[n] s, float[n] t) { o = Identity(g) s = Add(v, v) t = Neg(v) }> }",
            {"k": scalar(3), "x": ramp(4)},
            ("k",),
        ),
    ]


def _places() -> list[Case]:
    data, rows = {"x": ramp(4, 5)}, integers(0, 3, 1)
    scatter = "(float[h,w] x, int64[k,w] i, float[k,w] u) => (float[h,w] y)"
    scatters = {**data, "i": np.array([[0, 1, 2, 3, 0], [1, 1, 3, 0, 2]]), "u": ramp(2, 5)}
    image = "(float[n,c,h,w] x, %s) => (float[k,c,a,b] y)"
    boxes = np.array([[0, 0, 3, 3], [1, 2, 6, 4]], np.float32)
    return [
        Case(
            "Gather",
            "(float[h,w] x, int64[k] i) => (float[k,w] y) { y = Gather(x, i) }",
            {**data, "i": rows},
            ("i",),
        ),
        Case(
            "GatherND",
            "(float[h,w] x, int64[k,2] i) => (float[k] y) { y = GatherND(x, i) }",
            {**data, "i": np.array([[0, 1], [3, 4], [-1, -5]])},
            ("i",),
        ),
        Case(
            "GatherElements",
            "(float[h,w] x, int64[k,w] i) => (float[k,w] y) { y = GatherElements(x, i) }",
            {**data, "i": scatters["i"]},
            ("i",),
        ),
        *(
            Case(
                f"ScatterElements {kind}",
                f'{scatter} {{ y = ScatterElements<reduction="{kind}">(x, i, u) }}',
                scatters,
                ("i",),
            )
            for kind in ("none", "add", "max")
        ),
        Case(
            "ScatterND",
            "(float[h,w] x, int64[k,1] i, float[k,w] u) => (float[h,w] y) "
            '{ y = ScatterND<reduction="add">(x, i, u) }',
            {**data, "i": np.array([[0], [-1], [2]]), "u": ramp(3, 5)},
            ("i",),
        ),
        Case(
            "OneHot",
            "(int64[k] i, int64 d, float[2] v) => (float[k,m] y) { y = OneHot(i, d, v) }",
            {"i": rows, "d": scalar(4), "v": floats(0, 1)},
            ("i", "d"),
        ),
        Case(
            "TopK",
            "(float[h,w] x, int64[1] k) => (float[h,m] y, int64[h,m] i) { y, i = TopK(x, k) }",
            {**data, "k": integers(2)},
            ("k", "x"),
        ),
        Case(
            "Compress",
            "(float[h,w] x, bool[k] c) => (float[m,w] y) { y = Compress<axis=0>(x, c) }",
            {**data, "c": np.array([True, False, True])},
            ("c",),
        ),
        Case(
            "ReverseSequence",
            "(float[t,b] x, int64[b] l) => (float[t,b] y) { y = ReverseSequence(x, l) }",
            {**data, "l": integers(1, 4, 2, 3, 4)},
            ("l",),
        ),
        Case(
            "NonMaxSuppression",
            "(float[b,n,4] x, float[b,c,n] s, int64[1] k, float[1] t, float[1] l) => (int64[m,3] y)"
            " { y = NonMaxSuppression(x, s, k, t, l) }",
            {
                "x": np.abs(ramp(1, 6, 4)),
                "s": ramp(1, 2, 6),
                "k": integers(3),
                "t": floats(0.5),
                "l": floats(0.1),
            },
            ("x", "s", "k", "t", "l"),
        ),
        Case(
            "RoiAlign",
            (image % "float[k,4] r, int64[k] i")
            + " { y = RoiAlign<output_height=2, output_width=3>(x, r, i) }",
            {"x": IMAGE, "r": boxes, "i": integers(0, 0)},
            ("r", "i"),
            opset=16,
        ),
        Case(
            "MaxRoiPool",
            (image % "float[k,5] r") + " { y = MaxRoiPool<pooled_shape=[2,3]>(x, r) }",
            {"x": IMAGE, "r": np.pad(boxes, ((0, 0), (1, 0)))},
            ("r",),
            opset=16,
        ),
        Case(
            "MaxUnpool",
            "(float[n,c,h,w] x, int64[n,c,h,w] i, int64[4] s) => (float[a,b,d,e] y) "
            "{ y = MaxUnpool<kernel_shape=[2,2], strides=[2,2]>(x, i, s) }",
            {
                "x": ramp(1, 1, 2, 2),
                "i": np.array([[[[0, 3], [8, 15]]]]),
                "s": integers(1, 1, 4, 4),
            },
            ("i", "s"),
        ),
        Case(
            "GridSample",
            "(float[n,c,h,w] x, float[n,a,b,2] g) => (float[n,c,a,b] y) { y = GridSample(x, g) }",
            {"x": IMAGE, "g": ramp(1, 3, 2, 2)},
            ("g",),
        ),
        Case(
            "DeformConv",
            "(float[n,c,h,w] x, float[3,2,2,2] w, float[n,8,a,b] o) => (float[n,3,a,b] y) "
            "{ y = DeformConv(x, w, o) }",
            {"x": IMAGE, "w": ramp(3, 2, 2, 2), "o": ramp(1, 8, 4, 6)},
            ("o",),
        ),
        Case(
            "AffineGrid",
            "(float[n,2,3] t, int64[4] s) => (float[n,a,b,2] y) { y = AffineGrid(t, s) }",
            {"t": ramp(1, 2, 3), "s": integers(1, 2, 3, 4)},
            ("s",),
        ),
        Case(
            "Col2Im",
            "(float[n,k,m] x, int64[2] s, int64[2] b) => (float[n,c,h,w] y) "
            "{ y = Col2Im(x, s, b) }",
            {"x": ramp(1, 8, 12), "s": integers(4, 5), "b": integers(2, 2)},
            ("s", "b"),
        ),
    ]


def _signals() -> list[Case]:
    return [
        Case(
            "DFT",
            "(float[b,n,1] x, int64 l, int64 a) => (float[b,m,2] y) { y = DFT(x, l, a) }",
            {"x": ramp(2, 12, 1), "l": scalar(8), "a": scalar(1)},
            ("l", "a"),
        ),
        Case(
            "STFT",
            "(float[b,n,1] x, int64 s, int64 l) => (float[b,f,m,2] y) { y = STFT(x, s, , l) }",
            {"x": ramp(1, 32, 1), "s": scalar(4), "l": scalar(8)},
            ("s", "l"),
        ),
        Case(
            "HannWindow",
            "(int64 s) => (float[n] y) { y = HannWindow(s) }",
            {"s": scalar(8)},
            ("s",),
        ),
        Case(
            "MelWeightMatrix",
            "(int64 b, int64 l, int64 r, float f, float t) => (float[n,m] y) "
            "{ y = MelWeightMatrix(b, l, r, f, t) }",
            {
                "b": scalar(4),
                "l": scalar(16),
                "r": scalar(8000),
                "f": scalar(0, np.float32),
                "t": scalar(4000, np.float32),
            },
            ("b", "l", "r", "f", "t"),
        ),
    ]


def _numbers() -> list[Case]:
    u8 = np.arange(12, dtype=np.uint8).reshape(3, 4)
    i8 = (np.arange(20, dtype=np.int8) - 9).reshape(4, 5)
    forest = (
        "(float[n,2] x) => (float[n,1] y) { y = ai.onnx.ml.TreeEnsembleRegressor<n_targets=1, "
        'nodes_treeids=[0,0,0], nodes_nodeids=[0,1,2], nodes_featureids=[1,0,0], nodes_modes=["%s",'
        '"LEAF","LEAF"], nodes_values=[0.5,0.0,0.0], nodes_truenodeids=[1,0,0], '
        "nodes_falsenodeids=[2,0,0], nodes_missing_value_tracks_true=[%d,0,0], "
        "target_ids=[0,0], target_treeids=[0,0], target_nodeids=[1,2], "
        "target_weights=[1.5,2.5]>(x) }"
    )
    return [
        Case(
            "MatMul",
            "(float[n,k] a, float[k,m] b) => (float[n,m] y) { y = MatMul(a, b) }",
            {"a": ramp(13, 6), "b": ramp(6, 33)},
            ("a",),
        ),
        Case(
            "MatMulInteger",
            "(uint8[n,k] a, int8[k,m] b, uint8 z, int8 w) => (int32[n,m] y) "
            "{ y = MatMulInteger(a, b, z, w) }",
            {"a": u8, "b": i8, "z": scalar(3, np.uint8), "w": scalar(1, np.int8)},
            ("a", "b", "z", "w"),
        ),
        Case(
            "ConvInteger",
            "(uint8[n,2,h,w] x, uint8[3,2,2,2] k, uint8 z) => (int32[n,3,a,b] y) "
            "{ y = ConvInteger(x, k, z) }",
            {
                "x": np.arange(70, dtype=np.uint8).reshape(1, 2, 5, 7),
                "k": np.arange(24, dtype=np.uint8).reshape(3, 2, 2, 2),
                "z": scalar(3, np.uint8),
            },
            ("x", "k", "z"),
        ),
        Case(
            "QuantizeLinear",
            "(float[h,w] x, float s, uint8 z) => (uint8[h,w] y) { y = QuantizeLinear(x, s, z) }",
            {"x": ramp(4, 5), "s": scalar(0.1, np.float32), "z": scalar(7, np.uint8)},
            ("x", "s", "z"),
        ),
        Case(
            "DequantizeLinear",
            "(uint8[h,w] x, float s, uint8 z) => (float[h,w] y) { y = DequantizeLinear(x, s, z) }",
            {"x": u8, "s": scalar(0.1, np.float32), "z": scalar(7, np.uint8)},
            ("x", "s", "z"),
        ),
        Case(
            "Clip",
            "(float[h,w] x, float l, float u) => (float[h,w] y) { y = Clip(x, l, u) }",
            {"x": ramp(4, 5), "l": scalar(-0.5, np.float32), "u": scalar(0.5, np.float32)},
            ("x", "l", "u"),
        ),
        Case(
            "BitShift",
            '(uint32[n] x, uint32[n] c) => (uint32[n] y) { y = BitShift<direction="LEFT">(x, c) }',
            {"x": np.arange(1, 5, dtype=np.uint32), "c": np.arange(4, dtype=np.uint32)},
            ("x", "c"),
        ),
        *(
            Case(
                f"TreeEnsembleRegressor {mode} {missing}",
                forest % (mode, missing),
                {"x": ramp(5, 2)},
                ("x",),
            )
            for mode in ("BRANCH_LEQ", "BRANCH_GT")
            for missing in (0, 1)
        ),
    ]


CASES: tuple[Case, ...] = (*_resizes(), *_pads(), *_shapes(), *_places(), *_signals(), *_numbers())
"""All operators, family by family."""
