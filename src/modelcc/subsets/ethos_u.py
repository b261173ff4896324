"""Arm's Ethos-U55 and Ethos-U65 as Vela 5.2 publishes what it takes (``--supported-ops-report``).

Where the report is silent, what Vela does with such an operator decides (``conformance/ethos_u.py``
compares them).
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np

from modelcc.frontends.tflite.module import TfliteTensor
from modelcc.subsets.limits import (
    CONSTANT,
    QUANTIZE,
    all_types,
    constant_operands,
    data_types,
    dilations,
    kernel,
    known_extents,
    padded,
    strides,
    strides_within,
)
from modelcc.subsets.subset import Limit, Subset
from modelcc.subsets.view import OperatorView, axes_of, extended, shape_of

_INTEGERS = ("INT8", "INT16", "INT32", "INT64", "UINT8")
_NARROW = ("INT8", "INT16", "UINT8")
_WEIGHT_SUM, _BIAS, _AXIS, _PRODUCT = 8323072, 1099511627775, 1 << 16, 256 * 256
_REDUCED = MappingProxyType({"INT8": 1 << 24, "UINT8": 1 << 23, "INT16": 1 << 16})
_PER_AXIS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
_WITHOUT_SCALES = (
    "ARG_MAX", "EXPAND_DIMS", "MIRROR_PAD", "PAD", "PADV2", "QUANTIZE", "TRANSPOSE",
)  # fmt: skip
_ANY_ZERO = (
    "AVERAGE_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "UNIDIRECTIONAL_SEQUENCE_LSTM",
)  # fmt: skip
_PARAMETERS = MappingProxyType(
    {
        **dict.fromkeys(("RESHAPE", "EXPAND_DIMS", "ARG_MAX", "TILE"), (1,)),
        **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REVERSE_V2"), (1,)),
        **dict.fromkeys(("PAD", "PADV2", "MIRROR_PAD", "TRANSPOSE"), (1,)),
        **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), (1,)),
        **dict.fromkeys(("TRANSPOSE_CONV", "SPLIT"), (0,)),
        **dict.fromkeys(("SLICE", "SPLIT_V"), (1, 2)),
        "STRIDED_SLICE": (1, 2, 3),
    }
)
"""Operands that are no feature maps: extents, axes, pads."""


def feature_maps(view: OperatorView) -> tuple[TfliteTensor, ...]:
    """Tensors that hold what is computed on: no parameters, biases, or states."""
    bias = {"CONV_2D": 2, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 2, "TRANSPOSE_CONV": 3}
    aside = (*_PARAMETERS.get(view.name, ()), bias.get(view.name, -1))
    if view.name == "UNIDIRECTIONAL_SEQUENCE_LSTM":
        return tuple(t for t in (view.input(0), *view.outputs) if t is not None)
    given = (t for n, t in enumerate(view.inputs) if t is not None and n not in aside)
    return (*given, *view.outputs)


# --- limits of all operators


def _type(view: OperatorView) -> str:
    found = next((t for t in feature_maps(view) if t.type not in _INTEGERS), None)
    return "" if found is None else f"{found.name!r} is {found.type}"


def _shaped(view: OperatorView) -> str:
    found = next((t for t in feature_maps(view) if not t.shape), None)
    return "" if found is None else f"{found.name!r} has no axes"


def _scales(view: OperatorView) -> str:
    if view.name in _WITHOUT_SCALES:
        return ""
    maps = (t for t in feature_maps(view) if t.type in _NARROW)
    found = next((t for t in maps if t.quantization is None), None)
    return "" if found is None else f"{found.name!r} has no scale"


def _per_axis(view: OperatorView) -> str:
    if view.name in _PER_AXIS:
        return ""
    maps = (t for t in feature_maps(view) if t.quantization is not None)
    found = next((t for t in maps if t.quantization and not t.quantization.per_tensor), None)
    return "" if found is None else f"{found.name!r} has a scale for each channel"


def _wide(view: OperatorView) -> str:
    if view.name == "ARG_MAX":
        return ""
    found = next((t for t in feature_maps(view) if t.type == "INT64"), None)
    return "" if found is None else f"{found.name!r} has 64 bits"


def _zero(view: OperatorView) -> str:
    if view.name in _ANY_ZERO:
        return ""
    for tensor in feature_maps(view):
        zeros = [] if tensor.quantization is None else tensor.quantization.zeros.tolist()
        if tensor.type == "INT32" and any(zeros):
            return f"{tensor.name!r} is INT32 with the zero point {zeros[0]}"
        if tensor.type == "UINT8" and any(zero < 0 for zero in zeros):
            return f"{tensor.name!r} is UINT8 with the zero point {min(zeros)}"
    return ""


_GENERIC = (
    known_extents(),
    Limit(_type, QUANTIZE),
    Limit(_shaped, "give it one axis of one element"),
    Limit(_scales, "quantize it with the rest: modelcc quantize"),
    Limit(_per_axis, "one scale for the tensor"),
    Limit(_wide, "compute it in 8 bits"),
    Limit(_zero, "a zero point of 0"),
)


def _no_32_bits(view: OperatorView) -> str:
    found = next((t for t in feature_maps(view) if t.type == "INT32"), None)
    return "" if found is None else f"{found.name!r} has 32 bits"


_NARROWED = (*_GENERIC, Limit(_no_32_bits, "compute it in 8 or 16 bits"))


# --- weights and windows


def _bias(view: OperatorView) -> str:
    bias = view.input(3 if view.name == "TRANSPOSE_CONV" else 2)
    if bias is None:
        return ""
    if bias.data is None:
        return f"the bias {bias.name!r} is no constant"
    if bias.type not in ("INT32", "INT64"):
        return f"the bias {bias.name!r} is {bias.type}"
    largest = int(np.abs(bias.data.astype(object)).max(initial=0))
    return f"the bias reaches {largest}; the limit is {_BIAS}" if largest >= _BIAS else ""


def _weights(view: OperatorView) -> str:
    weights = view.input(1)
    if weights is None or weights.type not in ("INT8", "UINT8"):
        return "weights of 8 bits are taken"
    if weights.data is None:
        return "" if view.name == "FULLY_CONNECTED" else "the weights are no constant"
    total = _largest_sum(view, weights)
    return f"weights sum up to {total}; the limit is {_WEIGHT_SUM}" if total > _WEIGHT_SUM else ""


def _largest_sum(view: OperatorView, weights: TfliteTensor) -> int:
    """Of the magnitudes of one output channel's weights."""
    assert weights.data is not None
    values = weights.data.astype(np.int64)
    axis = 3 if view.name == "DEPTHWISE_CONV_2D" else 0
    if weights.quantization is not None:
        zeros, along = weights.quantization.zeros, weights.quantization.axis
        shape = [-1 if n == along else 1 for n in range(values.ndim)]
        values = values - (zeros.reshape(shape) if zeros.size > 1 else zeros)
    rows = np.abs(np.moveaxis(values, axis, 0)).reshape(values.shape[axis], -1)
    return int(rows.sum(axis=1).max(initial=0))


def _window_strides(view: OperatorView) -> str:
    found = strides(view)
    if max(found) <= 3 or (padded(view) == ((0, 0), (0, 0)) and max(dilations(view)) == 1):
        return ""
    return f"strides {found[0]}x{found[1]}; beyond 3 without padding and dilation only"


def _average(view: OperatorView) -> str:
    rows, columns = kernel(view)
    if padded(view) == ((0, 0), (0, 0)):
        return _pool(view)
    return f"a padded window of {rows}x{columns}; up to 8x8" if max(rows, columns) > 8 else ""


def _pool(view: OperatorView) -> str:
    rows, columns = kernel(view)
    if rows <= 256 and rows * columns <= _PRODUCT:
        return ""
    return f"a window of {rows}x{columns}; up to 256 rows and {_PRODUCT} elements"


def _dynamic_product(view: OperatorView) -> str:
    weights, data = view.input(1), view.input(0)
    if weights is None or data is None or (weights.data is not None and "BATCH" not in view.name):
        return ""
    depth, reduced = shape_of(view.outputs[0])[-1:], shape_of(data)[-1:]
    if data.type != "INT8":
        return f"{data.name!r} is {data.type}; products of two tensors take INT8"
    if max(*depth, *reduced, 0) > _AXIS:
        return f"a product of {reduced[0]} by {depth[0]}; up to {_AXIS}"
    return ""


def _transposed_strides(view: OperatorView) -> str:
    rows, columns = strides(view)
    data, (tall, wide) = extended(shape_of(view.data)), kernel(view)
    flat = data[1] == tall == 1 and (rows, columns) == (1, 2)
    thin = data[2] == wide == 1 and (rows, columns) == (2, 1)
    if (rows, columns) in ((1, 1), (2, 2)) or flat or thin:
        return ""
    return f"strides {rows}x{columns}; 1x1 and 2x2 are taken, 1x2 and 2x1 of one row or column"


def _transposed_extents(view: OperatorView) -> str:
    data, result = shape_of(view.data)[1:3], shape_of(view.outputs[0])[1:3]
    same = view.text("padding") == "SAME"
    axes = zip(data, strides(view), kernel(view), strict=True)
    wanted = tuple(n * s + (0 if same else max(k - s, 0)) for n, s, k in axes)
    if wanted == result:
        return ""
    words = f"{result[0]}x{result[1]} of {data[0]}x{data[1]}"
    return f"{words}; it would be {wanted[0]}x{wanted[1]}"


_BIASED = Limit(_bias, CONSTANT)
_WEIGHED = Limit(_weights, "weights of 8 bits, or fewer channels")
_STRIDDEN = Limit(_window_strides, "pad by an operator of its own, or use smaller strides")
_MULTIPLIED = Limit(_dynamic_product, "INT8, and smaller factors")


# --- reductions, movement, resizing


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
    """Factors of rows and columns, as their corners or extents say."""
    less = 1 if view.operator.options.get("align_corners") else 0
    data, result = shape_of(view.data)[1:3], shape_of(view.outputs[0])[1:3]

    def factor(before: int, after: int) -> float:
        if before - less == 0:
            return 1.0 if after == before else math.inf
        return (after - less) / (before - less)

    return factor(data[0], result[0]), factor(data[1], result[1])


def _resize(view: OperatorView) -> str:
    data, result = shape_of(view.data)[1:3], shape_of(view.outputs[0])[1:3]
    if data in ((1, 1), result):
        return ""
    rows, columns = _resize_factors(view)
    centers = bool(view.operator.options.get("half_pixel_centers")) and "BILINEAR" in view.name
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
    return f"extents {data} in the order {order}" if most > _AXIS else ""


def _inner(data: tuple[int, ...], order: tuple[int, ...]) -> bool:
    """Whether only the last three axes move, and those are all there is and not too long."""
    outer = len(data) - 3
    return order[:outer] == tuple(range(outer)) and math.prod(data[:outer]) == 1 and (
        max(data, default=0) <= _AXIS
    )  # fmt: skip


def _wide_transpose(data: tuple[int, ...], order: tuple[int, ...]) -> str:
    if len(data) > 4:
        return f"32 bits and rank {len(data)}; up to 4"
    n, h, w, c = extended(data)
    full = (*range(4 - len(data)), *(axis + 4 - len(data) for axis in order))
    fits: dict[tuple[int, ...], bool] = {
        (0, 1, 2, 3): c <= _AXIS,
        (0, 2, 1, 3): n == 1 and max(h, w) <= _AXIS and c <= 1 << 14,
        (0, 1, 3, 2): n * h <= _AXIS and max(w, c) <= _AXIS,
    }
    if fits.get(full, False):
        return ""
    return f"32 bits, extents {data} in the order {order}"


def _softmax(view: OperatorView) -> str:
    data = extended(shape_of(view.data))
    count = data[-3] * data[-2]
    return f"{data[-3]} x {data[-2]} rows; up to {_AXIS}" if count > _AXIS else ""


def _splits(view: OperatorView) -> str:
    told = view.number("num_splits", len(view.outputs))
    return "" if told == len(view.outputs) else f"{told} parts, {len(view.outputs)} results"


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


def _matching(*allowed: str) -> Limit:
    def broken(view: OperatorView) -> str:
        data, result = view.data, view.outputs[0]
        if data is None or data.type not in allowed or data.type != result.type:
            return f"{'' if data is None else data.type} to {result.type}"
        same = shape_of(data) == shape_of(result)
        return "" if same else f"{shape_of(data)} to {shape_of(result)}"

    return Limit(broken, f"{' or '.join(allowed)} in and out")


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


_PADDED = (constant_operands(1), Limit(_parameter_types, "INT32 pads"))
_RESIZED = (*_NARROWED, Limit(_resize, "factors of 2, 4 or 8, equal ones, corners not aligned"))
_REDUCED_AXES = (*_NARROWED,)
_SHAPES = ("ADD", "SUB", "MUL", "NEG", "RESHAPE", "SQUEEZE", "SUM")
_PLAIN = (
    "ABS", "CONCATENATION", "EXP", "LEAKY_RELU", "LOGISTIC", "PACK", "PRELU", "QUANTIZE",
    "REDUCE_MAX", "REDUCE_MIN", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1",
    "SQUARED_DIFFERENCE", "TANH", "TILE", "UNPACK",
)  # fmt: skip

_OPERATORS = {
    **dict.fromkeys(_SHAPES, _GENERIC),
    **dict.fromkeys(_PLAIN, _NARROWED),
    **dict.fromkeys(
        ("CONV_2D",), (*_NARROWED, _BIASED, _WEIGHED, _STRIDDEN)
    ),
    "DEPTHWISE_CONV_2D": (*_NARROWED, _BIASED, _WEIGHED, strides_within(1, 3)),
    "FULLY_CONNECTED": (*_NARROWED, _BIASED, _WEIGHED, _MULTIPLIED),
    "TRANSPOSE_CONV": (
        *_NARROWED, _BIASED, _WEIGHED,
        Limit(_transposed_strides, "strides of 1 or 2"),
        Limit(_transposed_extents, "cut the result by a slice after it"),
    ),
    "BATCH_MATMUL": (*_NARROWED, _MULTIPLIED),
    "AVERAGE_POOL_2D": (*_NARROWED, _STRIDDEN, Limit(_average, "a smaller window")),
    "MAX_POOL_2D": (*_NARROWED, _STRIDDEN, Limit(_pool, "a smaller window")),
    "MEAN": (*_GENERIC, constant_operands(1), Limit(_mean, "a mean over rows and columns")),
    "ARG_MAX": (*_GENERIC, data_types(("INT8", "UINT8")), Limit(_arg_max, "fewer channels")),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), (*_NARROWED, Limit(_same_scales, "equal scales"))),
    "ELU": (*_GENERIC, _matching("INT8")),
    "GELU": (*_GENERIC, _matching("INT8", "UINT8")),
    "LOG": (*_GENERIC, _matching("INT8", "INT16")),
    "RSQRT": (*_GENERIC, data_types(("INT8", "INT16"))),
    "HARD_SWISH": (*_NARROWED, data_types(("INT8", "UINT8"))),
    **dict.fromkeys(("PAD", "PADV2"), (*_NARROWED, *_PADDED)),
    "MIRROR_PAD": (*_GENERIC, *_PADDED),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _RESIZED),
    "SLICE": (*_NARROWED, constant_operands(1, 2)),
    "STRIDED_SLICE": (
        *_NARROWED, constant_operands(1, 2, 3),
        Limit(_strided_slice, "steps along rows and columns only"),
    ),
    "TRANSPOSE": (*_GENERIC, constant_operands(1), Limit(_transpose, "smaller extents")),
    "SOFTMAX": (*_NARROWED, Limit(_softmax, "fewer rows at a time")),
    **dict.fromkeys(("SPLIT", "SPLIT_V"), (*_NARROWED, Limit(_splits))),
    "REVERSE_V2": (*_NARROWED, Limit(_reverse, "leave it out")),
    "EXPAND_DIMS": _GENERIC,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        *_NARROWED, all_types(("INT8", "INT16"), (0,)), Limit(_lstm, "a plain LSTM"),
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
