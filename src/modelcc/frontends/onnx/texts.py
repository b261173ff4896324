"""Handlers of what looks into texts, or decodes images: steps of the runtime.

They come before compiled code, which knows texts as handles only.  So these operators work on what
the caller gives, or what such steps make of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.matching import matching_machine
from modelcc.frontends.onnx.regular_expression import PatternError
from modelcc.ir.index import Index
from modelcc.ir.op import broadcast_shapes
from modelcc.ir.structure import Setting
from modelcc.ir.types import BOOL, I64, STRING, U8, DType, TensorType


def _step(
    call: Call,
    function: str,
    results: tuple[TensorType, ...],
    settings: Mapping[str, Setting] = MappingProxyType({}),
) -> tuple[str, ...]:
    named = {f"{'/'.join(call.source)}.{i}": type for i, type in enumerate(results)}
    return call.emitter.host_step(function, call.inputs, named, settings)


def _texts(*shape: Index) -> TensorType:
    return TensorType(shape, STRING)


def concat(call: Call) -> tuple[str, ...]:
    return _step(call, "concat", (_texts(*broadcast_shapes(call.shape(), call.shape(1))),))


def split(call: Call) -> tuple[str, ...]:
    """Into how many parts is seen when the model is called."""
    parts = call.emitter.fresh_dim(f"{'/'.join(call.source)}.parts")
    types = (_texts(*call.shape(), parts), TensorType(call.shape(), I64))
    settings = {
        "delimiter": call.attrs.text("delimiter", ""),
        "maxsplit": call.attrs.integer("maxsplit", -1),
    }
    return _step(call, "split", types, settings)


def normalize(call: Call) -> tuple[str, ...]:
    """How many texts are left is seen when the model is called."""
    attrs = call.attrs
    kept = call.emitter.fresh_dim(f"{'/'.join(call.source)}.kept")
    settings = {
        "case": attrs.text("case_change_action", "NONE"),
        "is_case_sensitive": attrs.integer("is_case_sensitive", 0),
        "stopwords": attrs.texts("stopwords", ()),
    }
    return _step(call, "normalize", (_texts(*call.shape()[:-1], kept),), settings)


def full_match(call: Call) -> tuple[str, ...]:
    pattern = call.attrs.text("pattern", "")
    try:
        machine = matching_machine(pattern)
    except PatternError as error:
        call.fail(f"the regular expression {pattern!r}: {error}")
    return _step(call, "full_match", (TensorType(call.shape(), BOOL),), machine)


def decode_image(call: Call) -> tuple[str, ...]:
    """How large the image is is seen when the model is called."""
    if call.rank() != 1 or call.dtype() != U8:
        call.fail(f"an encoded image is u8[bytes], not {call.type()}")
    formats = ("RGB", "BGR", "Grayscale")
    chosen = call.option("pixel_format", formats, "RGB")
    place = "/".join(call.source)
    height, width = (call.emitter.fresh_dim(f"{place}.{what}") for what in ("height", "width"))
    shape = (height, width, 1 if chosen == "Grayscale" else 3)
    return _step(call, "decode_image", (TensorType(shape, U8),), {"pixel_format": chosen})


def numbers(call: Call, to: DType) -> str:
    """The numbers that texts spell."""
    (result,) = _step(call, "to_numbers", (TensorType(call.shape(), to),), {"dtype": to.name})
    return result


TEXTS = table(
    StringConcat=concat,
    StringSplit=split,
    StringNormalizer=normalize,
    RegexFullMatch=full_match,
    ImageDecoder=decode_image,
)
