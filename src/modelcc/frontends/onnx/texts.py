"""Handlers of what looks into texts: steps of the runtime, before compiled code.

Compiled code knows texts as handles only.  So these operators work on texts that the caller gives,
or that such steps make of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.frontends.onnx.errors import unsupported
from modelcc.ir.index import Index
from modelcc.ir.op import broadcast_shapes
from modelcc.ir.structure import Setting
from modelcc.ir.types import BOOL, I64, STRING, DType, TensorType


def _step(
    call: Call,
    function: str,
    results: tuple[TensorType, ...],
    settings: Mapping[str, Setting] = MappingProxyType({}),
) -> tuple[str, ...]:
    named = {f"{'/'.join(call.source)}.{i}": type for i, type in enumerate(results)}
    return call.emitter.text_step(function, call.inputs, named, settings)


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
        re.compile(pattern)
    except re.error as error:
        unsupported(f"the regular expression {pattern!r} ({error})")
    return _step(call, "full_match", (TensorType(call.shape(), BOOL),), {"pattern": pattern})


def numbers(call: Call, to: DType) -> str:
    """The numbers that texts spell."""
    (result,) = _step(call, "to_numbers", (TensorType(call.shape(), to),), {"dtype": to.name})
    return result


TEXTS: Handlers = MappingProxyType(
    {
        "StringConcat": concat,
        "StringSplit": split,
        "StringNormalizer": normalize,
        "RegexFullMatch": full_match,
    }
)
