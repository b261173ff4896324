"""Runtime steps before compiled code; they convert images and maps to tensors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.frontends.kit.groups import MapValue
from modelcc.frontends.onnx.call import Call, table
from modelcc.ir.index import Index
from modelcc.ir.structure import Setting
from modelcc.ir.types import F32, I64, STRING, U8, DType, TensorType

CASTS = MappingProxyType({"TO_FLOAT": F32, "TO_STRING": STRING, "TO_INT64": I64})


def host_step(
    call: Call,
    function: str,
    results: tuple[TensorType, ...],
    settings: Mapping[str, Setting] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Results of runtime step ``function`` on the caller's inputs, or on results of such steps."""
    named = {f"{'/'.join(call.source)}.{i}": type for i, type in enumerate(results)}
    return call.emitter.host_step(function, call.inputs, named, settings)


def decode_image(call: Call) -> tuple[str, ...]:
    """The size of the image is known when the model is called."""
    if call.rank() != 1 or call.dtype() != U8:
        call.fail(f"an encoded image is u8[bytes], not {call.type()}")
    formats = ("RGB", "BGR", "Grayscale")
    chosen = call.option("pixel_format", formats, "RGB")
    place = "/".join(call.source)
    height, width = (call.emitter.fresh_dim(f"{place}.{what}") for what in ("height", "width"))
    shape = (height, width, 1 if chosen == "Grayscale" else 3)
    return host_step(call, "decode_image", (TensorType(shape, U8),), {"pixel_format": chosen})


def dict_vectorizer(call: Call) -> str:
    """The values of known keys, in order."""
    texts = call.attrs.has("string_vocabulary")
    keys: tuple[str | int, ...] = (
        call.attrs.texts("string_vocabulary") if texts else call.attrs.integers("int64_vocabulary")
    )
    return _made(call, "vectorize_map", len(keys), _map(call).dtype, {"keys": keys})


def cast_map(call: Call) -> str:
    """The values in key order, or at the indices given by the keys."""
    form = call.option("map_form", ("DENSE", "SPARSE"), "DENSE")
    to = call.attrs.text("cast_to", "TO_FLOAT")
    dtype = CASTS[call.choice(to, tuple(CASTS), "cast_to")]
    _map(call)
    if form == "SPARSE":
        length = call.attrs.integer("max_map", 1)
        return _made(call, "cast_map", length, dtype, {"length": length})
    count = call.emitter.fresh_dim(f"{'/'.join(call.source)}.count")
    return _made(call, "cast_map", count, dtype, {"length": -1})


def _map(call: Call) -> MapValue:
    found = call.find_group(0)
    if not isinstance(found, MapValue):
        call.fail(f"operand 0 ({call.labels[0]!r}) must be a map")
    return found


def _made(
    call: Call, function: str, extent: Index, dtype: DType, settings: dict[str, Setting]
) -> str:
    named = {f"{'/'.join(call.source)}.0": TensorType((1, extent), dtype)}
    given = {**settings, "dtype": dtype.name}
    (result,) = call.emitter.host_step(function, call.inputs, named, given)
    return result


MAPS = table(DictVectorizer=dict_vectorizer, CastMap=cast_map)


IMAGES = table(ImageDecoder=decode_image)
