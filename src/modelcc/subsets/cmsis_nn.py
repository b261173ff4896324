"""CMSIS-NN 7: the operators that it implements for TensorFlow Lite for Microcontrollers."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from modelcc.subsets.limits import QUANTIZE, data_types, dilations, known_extents
from modelcc.subsets.subset import Limitation, Subset
from modelcc.subsets.view import OperatorView, shape_of

_BYTES, _BOTH = ("INT8",), ("INT8", "INT16")


def _taken(types: Sequence[str], *more: Limitation) -> tuple[Limitation, ...]:
    return (known_extents(), data_types(types, QUANTIZE), *more)


def _weights(view: OperatorView) -> str:
    found = view.input(1)
    if found is None or found.type in ("INT8", "INT4"):
        return ""
    return f"weights of {found.type}; INT8 and INT4 are taken"


def _narrow_weights(view: OperatorView) -> str:
    weights, data = view.input(1), view.data
    wide = data is not None and data.type == "INT16"
    return "INT4 weights and INT16 data" if wide and weights and weights.type == "INT4" else ""


def _dilated(view: OperatorView) -> str:
    data = view.data
    if data is None or data.type == "INT8" or max(dilations(view)) == 1:
        return ""
    return f"dilations {dilations(view)} and 16 bits"


def _ordered(view: OperatorView) -> str:
    found = len(shape_of(view.data))
    return "" if found <= 4 else f"rank {found}; up to 4"


def _equal_shapes(view: OperatorView) -> str:
    first, second = shape_of(view.input(0)), shape_of(view.input(1))
    return "" if first == second else f"{first} and {second}; equal extents are taken"


def _per_tensor(view: OperatorView) -> str:
    own = None if view.input(1) is None else view.inputs[1]
    scales = None if own is None else own.quantization
    wide = view.data is not None and view.data.type == "INT16"
    return "INT16 and a scale for each channel" if scales and wide and not scales.per_tensor else ""


_WEIGHTED = (Limitation(_weights, QUANTIZE), Limitation(_narrow_weights, "INT8 weights"))
_EQUAL = Limitation(_equal_shapes, "the smaller operand written out")

_OPERATORS = {
    "CONV_2D": _taken(_BOTH, *_WEIGHTED),
    "DEPTHWISE_CONV_2D": _taken(_BOTH, *_WEIGHTED, Limitation(_dilated, "INT8, or no dilation")),
    "FULLY_CONNECTED": _taken(
        _BOTH, *_WEIGHTED, Limitation(_per_tensor, "one scale for the weights")
    ),
    "TRANSPOSE_CONV": _taken(_BYTES, *_WEIGHTED),
    "BATCH_MATMUL": _taken(_BOTH),
    **dict.fromkeys(("ADD", "MUL"), _taken(_BOTH, _EQUAL)),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), _taken(_BYTES)),
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D"), _taken(_BOTH)),
    "SOFTMAX": _taken(_BOTH),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _taken(_BOTH),
    "SVDF": _taken(_BYTES),
    "PAD": _taken(_BYTES, Limitation(_ordered, "four axes")),
    "TRANSPOSE": _taken(_BYTES, Limitation(_ordered, "four axes")),
}  # fmt: skip

_ABSENT = {
    name: "nothing: the runtime's plain kernel runs"
    for name in ("RESHAPE", "QUANTIZE", "DEQUANTIZE", "LOGISTIC", "CONCATENATION", "MEAN")
}

CMSIS_NN = Subset(
    "cmsis-nn", "CMSIS-NN under TensorFlow Lite for Microcontrollers",
    "CMSIS-NN: operator table of its README, and the kernels of tflite-micro that call it",
    MappingProxyType(_OPERATORS), MappingProxyType(_ABSENT),
)  # fmt: skip
