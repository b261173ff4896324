"""Valid values of the standard operators' attributes, where schemas do not specify them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from onnx import AttributeProto, NodeProto

from modelcc.ir.errors import ModelError

_WINDOWS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "ConvInteger",
            "QLinearConv", "MaxUnpool", "Col2Im", "DeformConv")  # fmt: skip
_CONVOLUTIONS = frozenset(("Conv", "ConvTranspose", "ConvInteger", "QLinearConv"))
_LAYERS = ("RNN", "GRU", "LSTM")

_LEAST: Mapping[tuple[str, str], float] = MappingProxyType(
    {
        **{(op, "pads"): 0 for op in _WINDOWS},
        **{(op, name): 1 for op in _WINDOWS for name in ("group", "kernel_shape")},
        **{(op, "clip"): 0 for op in _LAYERS},
        ("ConvTranspose", "output_padding"): 0,
        ("DepthToSpace", "blocksize"): 1,
        ("GroupNormalization", "num_groups"): 1,
        ("LRN", "size"): 1,
        ("MaxRoiPool", "pooled_shape"): 1,
        ("RoiAlign", "output_height"): 0,
        ("RoiAlign", "output_width"): 0,
        ("RoiAlign", "sampling_ratio"): 0,
        ("SpaceToDepth", "blocksize"): 1,
        ("Split", "num_outputs"): 1,
    }
)
_CHOICES: Mapping[tuple[str, str], tuple[str | int, ...]] = MappingProxyType(
    {
        **{(op, "auto_pad"): ("NOTSET", "", "VALID", "SAME_UPPER", "SAME_LOWER")
           for op in _WINDOWS},
        **{(op, "layout"): (0, 1) for op in _LAYERS},
        ("BitShift", "direction"): ("LEFT", "RIGHT"),
        ("DepthToSpace", "mode"): ("DCR", "CRD"),
        ("Gelu", "approximate"): ("none", "tanh"),
        ("NonMaxSuppression", "center_point_box"): (0, 1),
    }
)  # fmt: skip
_HINT = "the exporter wrote an invalid node; correct the attribute"


def check_ranges(node: NodeProto, where: str) -> None:
    """:class:`ModelError` if an attribute of ``node`` has an invalid value."""
    for attribute in node.attribute:
        key = (node.op_type, attribute.name)
        values = _values(attribute)
        least, choices = _LEAST.get(key), _CHOICES.get(key)
        if least is not None and any(v < least for v in values if not isinstance(v, str)):
            shown = ", ".join(map(str, values))
            message = f"attribute {attribute.name} must be at least {least}, not {shown}"
            raise ModelError(message, (where,), _HINT)
        if choices is not None and any(v not in choices for v in values):
            known = ", ".join(repr(c) for c in choices)
            shown = ", ".join(repr(v) for v in values)
            message = f"attribute {attribute.name} is {shown}, which is none of {known}"
            raise ModelError(message, (where,), _HINT)
    if node.op_type in _CONVOLUTIONS:
        _check_pads(node, where)


def _check_pads(node: NodeProto, where: str) -> None:
    """Convolutions have explicit or automatic pads, as in onnxruntime; poolings may have both."""
    given = {attribute.name: _values(attribute) for attribute in node.attribute}
    (mode,) = given.get("auto_pad", ("NOTSET",))
    if "pads" in given and mode not in ("NOTSET", ""):
        raise ModelError(f"it has both pads and auto_pad={mode}", (where,), _HINT)


def _values(attribute: AttributeProto) -> tuple[int | float | str, ...]:
    match attribute.type:
        case AttributeProto.INT:
            return (attribute.i,)
        case AttributeProto.FLOAT:
            return (attribute.f,)
        case AttributeProto.INTS:
            return tuple(attribute.ints)
        case AttributeProto.STRING:
            return (attribute.s.decode("utf-8", "replace"),)
        case _:
            return ()
