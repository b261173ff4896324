"""Constraints of Ethos-U on any operator, on weights and on windows."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from modelcc.frontends.tflite.module import TfliteTensor
from modelcc.subsets.limits import (
    CONSTANT,
    QUANTIZE,
    dilations,
    kernel,
    known_extents,
    padded,
    strides,
)
from modelcc.subsets.subset import Limitation
from modelcc.subsets.view import OperatorView, extended, shape_of

_INTEGERS = ("INT8", "INT16", "INT32", "INT64", "UINT8")
_NARROW = ("INT8", "INT16", "UINT8")
_WEIGHT_SUM, _BIAS, LONGEST, _PRODUCT = 8323072, 1099511627775, 1 << 16, 256 * 256
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
"""Operands that are not feature maps: extents, axes, pads."""


def feature_maps(view: OperatorView) -> tuple[TfliteTensor, ...]:
    """Feature maps: tensors except parameters, biases, and states."""
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
    found = next((t for t in feature_maps(view) if not t.shape and t.data is None), None)
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
        quantization = tensor.quantization
        zeros: list[int] = [] if quantization is None else quantization.zeros.tolist()
        if tensor.type == "INT32" and any(zeros):
            return f"{tensor.name!r} is INT32 with the zero point {zeros[0]}"
        if tensor.type == "UINT8" and any(zero < 0 for zero in zeros):
            return f"{tensor.name!r} is UINT8 with the zero point {min(zeros)}"
    return ""


GENERIC = (
    known_extents(),
    Limitation(_type, QUANTIZE),
    Limitation(_shaped, "give it one axis of one element"),
    Limitation(_scales, "quantize it with the rest: modelcc quantize"),
    Limitation(_per_axis, "one scale for the tensor"),
    Limitation(_wide, "compute it in 8 bits"),
    Limitation(_zero, "a zero point of 0"),
)


def _no_32_bits(view: OperatorView) -> str:
    found = next((t for t in feature_maps(view) if t.type == "INT32"), None)
    return "" if found is None else f"{found.name!r} has 32 bits"


NARROWED = (*GENERIC, Limitation(_no_32_bits, "compute it in 8 or 16 bits"))


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
    """The largest sum of weight magnitudes of an output channel."""
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
    if max(*depth, *reduced, 0) > LONGEST:
        return f"a product of {reduced[0]} by {depth[0]}; up to {LONGEST}"
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


BIASED = Limitation(_bias, CONSTANT)
WEIGHED = Limitation(_weights, "weights of 8 bits, or fewer channels")
STRIDDEN = Limitation(_window_strides, "pad by an operator of its own, or use smaller strides")
MULTIPLIED = Limitation(_dynamic_product, "INT8, and smaller factors")
AVERAGED = Limitation(_average, "a smaller window")
POOLED = Limitation(_pool, "a smaller window")
UPSAMPLED = (
    Limitation(_transposed_strides, "strides of 1 or 2"),
    Limitation(_transposed_extents, "cut the result by a slice after it"),
)
