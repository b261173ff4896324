"""Coral's Edge TPU as documented ("TensorFlow models on the Edge TPU")."""

from __future__ import annotations

import math
from types import MappingProxyType

from modelcc.frontends.tflite.module import TfliteTensor
from modelcc.subsets.limits import (
    QUANTIZE,
    constant_operands,
    dilations,
    known_extents,
    no_activation,
    not_along_batch,
)
from modelcc.subsets.subset import Limitation, Subset
from modelcc.subsets.view import OperatorView, axes_of, shape_of

_BYTES = ("INT8", "UINT8")
_SOFTMAX, _CHANNELS = 16_000, 4
_INDICES = ("INT32", "INT64")


def _bytes(view: OperatorView) -> str:
    """8-bit activations and weights; biases, extents and axes are 32-bit."""
    first = [t for t in (view.data,) if t is not None]
    found = [t for t in (*first, *view.outputs) if t.type not in _BYTES]
    found += [t for t in _others(view) if t.type not in (*_BYTES, *_INDICES)]
    return "" if not found else f"{found[0].name!r} is {found[0].type}, not of 8 bits"


def _others(view: OperatorView) -> tuple[TfliteTensor, ...]:
    return tuple(t for t in view.inputs if t is not None and t is not view.data)


def _scaled(view: OperatorView) -> str:
    tensors = (t for t in view.tensors if t.type in _BYTES and t.quantization is None)
    found = next(tensors, None)
    return "" if found is None else f"{found.name!r} has no scale"


def _three_axes(view: OperatorView) -> str:
    """Only the three innermost axes of activations may be longer than 1."""
    for tensor in view.tensors:
        outer = shape_of(tensor)[:-3]
        if tensor.data is None and math.prod(outer) > 1:
            return f"{tensor.name!r} of {shape_of(tensor)}; three innermost axes are taken"
    return ""


_GENERIC = (
    known_extents(first=True),
    Limitation(_bytes, QUANTIZE),
    Limitation(_scaled, "quantize it with the rest: modelcc quantize"),
    Limitation(_three_axes, "a batch of 1, and tensors of three axes"),
)


def _one_dilation(view: OperatorView) -> str:
    rows, columns = dilations(view)
    return "" if rows == columns else f"dilations {rows} and {columns}; equal ones are taken"


def _zeros_only(view: OperatorView) -> str:
    fixed = [t for t in view.inputs if t is not None and t.data is not None]
    if not fixed:
        return ""
    if len(view.inputs) != 2:
        return f"a constant among {len(view.inputs)} operands; of two, one may be"
    zero = 0 if fixed[0].quantization is None else fixed[0].quantization.zero
    data = fixed[0].data
    plain = data is not None and bool((data == zero).all())
    return "" if plain else f"the constant {fixed[0].name!r} has elements other than zero"


def _single_row(view: OperatorView) -> str:
    found = shape_of(view.outputs[0])
    return "" if math.prod(found[:-1]) == 1 else f"a result of {found}; one row is taken"


def _plain_weights(view: OperatorView) -> str:
    found = view.text("weights_format", "DEFAULT")
    return "" if found == "DEFAULT" else f"weights in the format {found}"


def _mean(view: OperatorView) -> str:
    data = shape_of(view.data)
    deep = len(data) - 1 in axes_of(view.constant(1), len(data))
    odd = deep and data[-1] % _CHANNELS
    return f"over {data[-1]} channels; multiples of {_CHANNELS} are taken" if odd else ""


def _slopes(view: OperatorView) -> str:
    found = shape_of(view.input(1))
    return "" if math.prod(found[:-1]) == 1 else f"slopes of {found}; one for each channel is taken"


def _three_dimensional(view: OperatorView) -> str:
    found = len([n for n in shape_of(view.data) if n > 1])
    return "" if found <= 3 else f"{found} axes"


def _softmax(view: OperatorView) -> str:
    found = shape_of(view.data)
    if math.prod(found[:-1]) > 1:
        return f"{math.prod(found[:-1])} rows; one is taken"
    return f"{found[-1]} elements; up to {_SOFTMAX:,}" if found and found[-1] > _SOFTMAX else ""


def _leading_ones(view: OperatorView) -> str:
    before, after = shape_of(view.data), shape_of(view.outputs[0])
    dropped = len(before) - len(after)
    return "" if before[dropped:] == after else f"{before} to {after}; leading ones are taken away"


def _plain_slice(view: OperatorView) -> str:
    steps = view.constant(3) or ()
    if any(step != 1 for step in steps):
        return f"steps of {steps}; 1 is taken"
    masks = [name for name in ("ellipsis_mask", "new_axis_mask") if view.number(name)]
    return f"{masks[0]} is {view.number(masks[0])}" if masks else ""


def _batch_axis(name: str, words: str) -> Limitation:
    def broken(view: OperatorView) -> str:
        rank = max(len(shape_of(view.data)), len(shape_of(view.outputs[0])))
        along = view.number(name) % rank if rank else 0
        return words if rank == 4 and along == 0 else ""

    return Limitation(broken, "keep the batch axis")


def _split(view: OperatorView) -> str:
    rank = len(shape_of(view.data))
    return "along the batch axis" if rank == 4 and 0 in axes_of(view.constant(0), rank) else ""


def _padded_batch(view: OperatorView) -> str:
    pads = view.constant(1) or (0, 0)
    batch = len(shape_of(view.data)) == 4 and any(pads[:2])
    return f"{pads[0]} and {pads[1]} pads of the batch axis" if batch else ""


_WEIGHTS = constant_operands(1, 2)
_RESIZED = (*_GENERIC, constant_operands(1), Limitation(_three_dimensional))
_UNBATCHED = (*_GENERIC, constant_operands(1), not_along_batch())
_PLAIN = (
    "ADD", "EXPAND_DIMS", "L2_NORMALIZATION", "LOGISTIC", "MAXIMUM", "MINIMUM", "MUL", "QUANTIZE",
    "RELU", "RELU6", "RELU_N1_TO_1", "RESHAPE", "RSQRT", "SLICE", "SPACE_TO_DEPTH",
    "SQUARED_DIFFERENCE", "SUB", "TANH", "TRANSPOSE", "UNIDIRECTIONAL_SEQUENCE_LSTM",
)  # fmt: skip

_OPERATORS = {
    **dict.fromkeys(_PLAIN, _GENERIC),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D"), (*_GENERIC, no_activation())),
    "CONCATENATION": (*_GENERIC, no_activation(), Limitation(_zeros_only, "PAD")),
    **dict.fromkeys(
        ("CONV_2D", "DEPTHWISE_CONV_2D"),
        (*_GENERIC, _WEIGHTS, Limitation(_one_dilation, "equal dilations")),
    ),
    "FULLY_CONNECTED": (
        *_GENERIC, _WEIGHTS, Limitation(_plain_weights, "the default format"),
        Limitation(_single_row, "CONV_2D of 1x1, where rows are pixels"),
    ),
    "TRANSPOSE_CONV": (*_GENERIC, constant_operands(0, 1, 3)),
    "MEAN": (*_UNBATCHED, Limitation(_mean, "a multiple of 4 channels")),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN", "SUM"), _UNBATCHED),
    "PACK": (*_GENERIC, _batch_axis("axis", "along the batch axis")),
    "PAD": (*_GENERIC, constant_operands(1), Limitation(_padded_batch, "keep the batch axis")),
    "PRELU": (*_GENERIC, constant_operands(1), Limitation(_slopes, "shared_axes=[1, 2] in Keras")),
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _RESIZED),
    "SOFTMAX": (*_GENERIC, Limitation(_softmax, "one row, or fewer classes")),
    "SPLIT": (*_GENERIC, Limitation(_split, "keep the batch axis")),
    "SQUEEZE": (*_GENERIC, Limitation(_leading_ones, "RESHAPE")),
    "STRIDED_SLICE": (*_GENERIC, Limitation(_plain_slice, "steps of 1")),
}  # fmt: skip

_ABSENT = {
    "DEQUANTIZE": "let the model's results be bytes, and scale them outside",
    "HARD_SWISH": "RELU6, or another activation, and training again",
    "LEAKY_RELU": "PRELU",
    "ARG_MAX": "SOFTMAX or plain scores, and the largest found outside",
    "DEPTH_TO_SPACE": "TRANSPOSE_CONV",
}

CORAL_EDGETPU = Subset(
    "coral-edgetpu", "Coral Edge TPU", "coral.ai, TensorFlow models on the Edge TPU",
    MappingProxyType(_OPERATORS), MappingProxyType(_ABSENT), one_partition=True,
)  # fmt: skip
