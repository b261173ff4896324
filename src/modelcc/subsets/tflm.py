"""TensorFlow Lite for Microcontrollers: its resolver's operators, and the types of each kernel."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from modelcc.subsets.limits import constant_operands, data_types, known_extents
from modelcc.subsets.subset import Limitation, Subset
from modelcc.subsets.view import OperatorView, shape_of

_F, _B, _H, _W, _L = "FLOAT32", "INT8", "INT16", "INT32", "INT64"
_QUANTIZED = (_F, _B, _H)
_FLOAT_BYTES = (_F, _B)
_FLOAT = (_F,)
_MOVED = (_F, _B, _H, _W, _L, "BOOL")
_ANY = (*_MOVED, "UINT8", "RESOURCE", "INT4")
_CALCULATED = (_F, _B, _H, _W)

_TYPES = {
    **dict.fromkeys(
        ("AVERAGE_POOL_2D", "MAX_POOL_2D", "BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D",
         "FULLY_CONNECTED", "LEAKY_RELU", "LOGISTIC", "PRELU", "RELU", "RELU6", "SOFTMAX", "TANH",
         "TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM", "TRANSPOSE"),
        _QUANTIZED,
    ),
    "SVDF": _FLOAT_BYTES,
    **dict.fromkeys(
        ("ADD_N", "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH",
         "ELU", "HARD_SWISH", "L2_NORMALIZATION", "LOG_SOFTMAX", "NEG", "RESIZE_BILINEAR",
         "ARG_MAX", "ARG_MIN"),
        _FLOAT_BYTES,
    ),
    **dict.fromkeys(
        ("CEIL", "COS", "EXP", "FLOOR", "FLOOR_DIV", "FLOOR_MOD", "L2_POOL_2D", "LOG", "ROUND",
         "SIN", "SQRT", "SQUARE"),
        _FLOAT,
    ),
    **dict.fromkeys(("ABS", "RSQRT"), _QUANTIZED),
    **dict.fromkeys(("ADD", "SUB", "MUL", "SQUARED_DIFFERENCE"), _CALCULATED),
    **dict.fromkeys(("DIV", "CUMSUM"), (_F, _B, _W)),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN"), (_F, _B, _H, _W)),
    "REDUCE_ALL": ("BOOL",),
    **dict.fromkeys(("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR"), ("BOOL",)),
    **dict.fromkeys(
        ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"), _MOVED
    ),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), (_F, _B, _H, _W, _L)),
    **dict.fromkeys(("CONCATENATION", "SLICE", "REVERSE_V2"), _MOVED),
    **dict.fromkeys(("PACK", "FILL", "DYNAMIC_UPDATE_SLICE"), (_F, _B, _H, _W, _L)),
    **dict.fromkeys(("SPLIT", "SPLIT_V", "UNPACK", "EXPAND_DIMS", "PAD", "PADV2"), _CALCULATED),
    "STRIDED_SLICE": (_F, _B, _H, _W, "BOOL"),
    "RESIZE_NEAREST_NEIGHBOR": _QUANTIZED,
    **dict.fromkeys(("GATHER", "GATHER_ND", "MIRROR_PAD"), _FLOAT_BYTES),
    "EMBEDDING_LOOKUP": (_W,),
    "ZEROS_LIKE": (_F, _B, _W, _L),
    "SELECT_V2": ("BOOL",),
    **dict.fromkeys(("BROADCAST_ARGS",), (_W, _L)),
    "CAST": (*_CALCULATED, "BOOL"),
    "QUANTIZE": (_F, _B, _H, _W, "UINT8"),
    "DEQUANTIZE": (_B, _H, "UINT8"),
    **dict.fromkeys(
        ("RESHAPE", "SQUEEZE", "SHAPE", "BROADCAST_TO", "ASSIGN_VARIABLE", "READ_VARIABLE"), _ANY
    ),
}  # fmt: skip


def _supported(types: Sequence[str]) -> tuple[Limitation, ...]:
    return (known_extents(), data_types(types, "quantize to int8, or keep floats"))


def _adjoint(view: OperatorView) -> str:
    weights, data = view.input(1), view.input(0)
    hybrid = weights is not None and data is not None and data.type == _F and weights.type == _B
    return "weights of 8 bits and floats (hybrid)" if hybrid else ""


def _rank(view: OperatorView) -> str:
    found = len(shape_of(view.data))
    return "" if found <= 5 else f"rank {found}; up to 5"


_HYBRID = Limitation(_adjoint, "quantize activations, too: modelcc quantize")
_WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")
_FREE = ("CALL_ONCE", "IF", "WHILE", "VAR_HANDLE")

_OPERATORS = {
    **{name: _supported(types) for name, types in _TYPES.items()},
    **{name: (*_supported(_TYPES[name]), _HYBRID) for name in _WEIGHTED},
    "STRIDED_SLICE": (*_supported(_TYPES["STRIDED_SLICE"]), Limitation(_rank, "fewer axes")),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": (
        *_supported(_QUANTIZED), constant_operands(1, 2, 3, 4, 5, 6, 7, 8),
    ),
    **dict.fromkeys(_FREE, ()),
}  # fmt: skip

_ABSENT = {
    "DENSIFY": "weights without sparsity",
    "TILE": "CONCATENATION of the tensor with itself",
    "GELU": "TANH or LOGISTIC",
    "POW": "MUL of a tensor by itself",
    "NON_MAX_SUPPRESSION_V4": "the custom TFLite_Detection_PostProcess",
}

TFLM = Subset(
    "tflm", "TensorFlow Lite for Microcontrollers, reference kernels",
    "tflite-micro: micro_mutable_op_resolver.h and its kernels",
    MappingProxyType(_OPERATORS), MappingProxyType(_ABSENT),
)  # fmt: skip
