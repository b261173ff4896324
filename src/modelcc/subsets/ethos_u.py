"""Arm's Ethos-U55 and Ethos-U65 from Vela 5.2's published constraints (``--supported-ops-report``).

Where the report is silent, Vela's behaviour decides (``conformance/ethos_u.py``
compares them).
"""

from __future__ import annotations

import math
from types import MappingProxyType

from modelcc.subsets.ethos_u_tensors import (
    AVERAGED,
    BIASED,
    GENERIC,
    LONGEST,
    MULTIPLIED,
    NARROWED,
    POOLED,
    STRIDDEN,
    UPSAMPLED,
    WEIGHED,
)
from modelcc.subsets.limits import all_types, constant_operands, data_types, strides_within
from modelcc.subsets.subset import Limitation, Subset
from modelcc.subsets.view import OperatorView, axes_of, extended, shape_of

_REDUCED = MappingProxyType({"INT8": 1 << 24, "UINT8": 1 << 23, "INT16": 1 << 16})


def _mean(view: OperatorView) -> str:
    data = shape_of(view.data)
    axes = axes_of(view.constant(1), len(data))
    if view.data is not None and view.data.type not in _REDUCED:
        return f"{view.data.name!r} is {view.data.type}"
    if math.prod(data[: max(0, len(data) - 3)]) > 1 or len(data) > 4:
        return f"a batch: {data}" if len(data) <= 4 else f"more than four axes: {data}"
    count = math.prod(data[axis] for axis in axes)
    most = _REDUCED[view.data.type] if view.data is not None else 0
    if count > most:
        return f"{count} elements become one; up to {most}"
    full = extended(data)
    deep = len(full) - 1 in {axis + len(full) - len(data) for axis in axes}
    if deep and min(full[1:]) > 1:
        return f"a mean over channels of {data}"
    return ""


def _arg_max(view: OperatorView) -> str:
    data = shape_of(view.data)
    if axes_of(view.constant(1), len(data)) != (len(data) - 1,):
        return f"along axis {view.constant(1)} of {data}; the last one is taken"
    return f"of {data[-1]} channels; up to 127" if data[-1] > 127 else ""


def _resize_factors(view: OperatorView) -> tuple[float, float]:
    """Scale factors of rows and columns, from aligned corners or extents."""
    less = 1 if view.operator.options.get("align_corners") else 0
    data, result = shape_of(view.data)[1:3], shape_of(view.outputs[0])[1:3]

    def factor(before: int, after: int) -> float:
        if before - less == 0:
            return 1.0 if after == before else math.inf
        return (after - less) / (before - less)

    return factor(data[0], result[0]), factor(data[1], result[1])


def _resize(view: OperatorView) -> str:
    data, result = shape_of(view.data)[1:3], shape_of(view.outputs[0])[1:3]
    centers = bool(view.operator.options.get("half_pixel_centers")) and "BILINEAR" in view.name
    if data == (1, 1) or (data == result and not centers):
        return ""
    rows, columns = _resize_factors(view)
    if rows != columns:
        scaled = [f for n, f in zip(result, (rows, columns), strict=True) if n > 1 or f != 1]
        if len(scaled) != 1 or centers:
            return f"factors {rows:g} and {columns:g}; equal ones are taken"
        rows = scaled[0]
    allowed = (2,) if centers else (2, 4, 8)
    if rows in allowed:
        return ""
    return f"a factor of {rows:g}; taken are {', '.join(map(str, allowed))}"


def _strided_slice(view: OperatorView) -> str:
    data, steps = shape_of(view.data), view.constant(3)
    if steps is None or len(steps) != len(data):
        return ""
    if min(steps) < 0:
        return f"a step of {min(steps)}"
    inner = len(data) - 3, len(data) - 2
    found = [n for n, step in enumerate(steps) if step > 1 and n not in inner]
    return f"a step of {steps[found[0]]} along axis {found[0]}" if found else ""


def _transpose(view: OperatorView) -> str:
    data, order = shape_of(view.data), view.constant(1)
    if order is None or len(data) > 8 or len(order) != len(data):
        return f"rank {len(data)}; up to 8" if len(data) > 8 else ""
    if view.data is not None and view.data.type == "INT32":
        return _wide_transpose(data, order)
    if order == tuple(range(len(data))) or _inner(data, order):
        return ""
    sizes = sorted(data)[2:]
    most = math.prod(sizes)
    return f"extents {data} in the order {order}" if most > LONGEST else ""


def _inner(data: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether only the last three axes are permuted, and all extents are within limits."""
    outer = len(data) - 3
    return order[:outer] == tuple(range(outer)) and math.prod(data[:outer]) == 1 and (
        max(data, default=0) <= LONGEST
    )  # fmt: skip


def _wide_transpose(data: tuple[int, ...], order: tuple[int, ...]) -> str:
    if len(data) > 4:
        return f"32 bits and rank {len(data)}; up to 4"
    n, h, w, c = extended(data)
    full = (*range(4 - len(data)), *(axis + 4 - len(data) for axis in order))
    fits: dict[tuple[int, ...], bool] = {
        (0, 1, 2, 3): c <= LONGEST,
        (0, 2, 1, 3): n == 1 and max(h, w) <= LONGEST and c <= 1 << 14,
        (0, 1, 3, 2): n * h <= LONGEST and max(w, c) <= LONGEST,
    }
    if fits.get(full, False):
        return ""
    return f"32 bits, extents {data} in the order {order}"


def _softmax(view: OperatorView) -> str:
    data = extended(shape_of(view.data))
    count = data[-3] * data[-2]
    return f"{data[-3]} x {data[-2]} rows; up to {LONGEST}" if count > LONGEST else ""


def _splits(view: OperatorView) -> str:
    parts = view.number("num_splits", len(view.outputs))
    return "" if parts == len(view.outputs) else f"{parts} parts, {len(view.outputs)} results"


def _reverse(view: OperatorView) -> str:
    return f"along axis {view.constant(1)}"


def _same_scales(view: OperatorView) -> str:
    first = view.outputs[0].quantization
    for tensor in view.inputs:
        own = None if tensor is None else tensor.quantization
        if own is None or first is None:
            continue
        if own.scale != first.scale or own.zero != first.zero:
            return f"scale {own.scale:g} and {first.scale:g}, zero {own.zero} and {first.zero}"
    return ""


def _matching(*allowed: str) -> Limitation:
    def broken(view: OperatorView) -> str:
        data, result = view.data, view.outputs[0]
        if data is None or data.type not in allowed or data.type != result.type:
            return f"{'' if data is None else data.type} to {result.type}"
        same = shape_of(data) == shape_of(result)
        return "" if same else f"{shape_of(data)} to {shape_of(result)}"

    return Limitation(broken, f"{' or '.join(allowed)} in and out")


def _parameter_types(view: OperatorView) -> str:
    found = view.input(1)
    return "" if found is None or found.type in ("INT32", "INT64") else f"pads of {found.type}"


def _lstm(view: OperatorView) -> str:
    gates = (1, 5, 12)
    if any(view.input(place) is None for place in gates):
        return "the input gate is left out"
    if any(view.input(place) is not None for place in range(9, 12)):
        return "peepholes"
    if any(view.input(place) is not None for place in (16, 17)):
        return "a projection"
    if any(view.input(place) is not None for place in range(20, 24)):
        return "normalised gates"
    return ""


_PADDED = (constant_operands(1), Limitation(_parameter_types, "INT32 pads"))
_RESIZED = (*NARROWED, Limitation(_resize, "factors of 2, 4 or 8, equal ones, corners not aligned"))
_SHAPES = ("ADD", "SUB", "MUL", "NEG", "RESHAPE", "SQUEEZE", "SUM")
_PLAIN = (
    "ABS", "CONCATENATION", "EXP", "LEAKY_RELU", "LOGISTIC", "PACK", "PRELU", "QUANTIZE",
    "REDUCE_MAX", "REDUCE_MIN", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1",
    "SQUARED_DIFFERENCE", "TANH", "TILE", "UNPACK",
)  # fmt: skip

_OPERATORS = {
    **dict.fromkeys(_SHAPES, GENERIC),
    **dict.fromkeys(_PLAIN, NARROWED),
    "CONV_2D": (*NARROWED, BIASED, WEIGHED, STRIDDEN),
    "DEPTHWISE_CONV_2D": (*NARROWED, BIASED, WEIGHED, strides_within(1, 3)),
    "FULLY_CONNECTED": (*NARROWED, BIASED, WEIGHED, MULTIPLIED),
    "TRANSPOSE_CONV": (
        *NARROWED, BIASED, WEIGHED, *UPSAMPLED,
    ),
    "BATCH_MATMUL": (*NARROWED, MULTIPLIED),
    "AVERAGE_POOL_2D": (*NARROWED, STRIDDEN, AVERAGED),
    "MAX_POOL_2D": (*NARROWED, STRIDDEN, POOLED),
    "MEAN": (*GENERIC, constant_operands(1), Limitation(_mean, "a mean over rows and columns")),
    "ARG_MAX": (*GENERIC, data_types(("INT8", "UINT8")), Limitation(_arg_max, "fewer channels")),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), (*NARROWED, Limitation(_same_scales, "equal scales"))),
    "ELU": (*GENERIC, _matching("INT8")),
    "GELU": (*GENERIC, _matching("INT8", "UINT8")),
    "LOG": (*GENERIC, _matching("INT8", "INT16")),
    "RSQRT": (*GENERIC, data_types(("INT8", "INT16"))),
    "HARD_SWISH": (*NARROWED, data_types(("INT8", "UINT8"))),
    **dict.fromkeys(("PAD", "PADV2"), (*NARROWED, *_PADDED)),
    "MIRROR_PAD": (*GENERIC, *_PADDED),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _RESIZED),
    "SLICE": (*NARROWED, constant_operands(1, 2)),
    "STRIDED_SLICE": (
        *NARROWED, constant_operands(1, 2, 3),
        Limitation(_strided_slice, "steps along rows and columns only"),
    ),
    "TRANSPOSE": (*GENERIC, constant_operands(1), Limitation(_transpose, "smaller extents")),
    "SOFTMAX": (*NARROWED, Limitation(_softmax, "fewer rows at a time")),
    **dict.fromkeys(("SPLIT", "SPLIT_V"), (*NARROWED, Limitation(_splits))),
    "REVERSE_V2": (*NARROWED, Limitation(_reverse, "leave it out")),
    "EXPAND_DIMS": GENERIC,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        *NARROWED, all_types(("INT8", "INT16"), (0,)), Limitation(_lstm, "a plain LSTM"),
    ),
}  # fmt: skip

_ABSENT = {
    "DEQUANTIZE": "let the model's results be bytes, and scale them outside",
    "SVDF": "FULLY_CONNECTED and DEPTHWISE_CONV_2D",
    "DIV": "MUL by what is known before",
    "SQRT": "a model without it",
    "SQUARE": "MUL of a tensor by itself",
    "CAST": "QUANTIZE",
}
_SOURCE = "Vela 5.2, --supported-ops-report"

ETHOS_U55 = Subset(
    "ethos-u55", "Arm Ethos-U55, by Vela", _SOURCE,
    MappingProxyType(_OPERATORS), MappingProxyType(_ABSENT),
)  # fmt: skip
ETHOS_U65 = Subset(
    "ethos-u65", "Arm Ethos-U65, by Vela", _SOURCE,
    MappingProxyType(_OPERATORS), MappingProxyType(_ABSENT),
)  # fmt: skip
