"""Handlers of string processing: runtime steps.

They precede compiled code, in which strings are opaque handles.  So these operators apply to the
caller's inputs, or to results of such steps.
"""

from __future__ import annotations

from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.host.matching import matching_machine
from modelcc.frontends.onnx.host.regular_expression import PatternError
from modelcc.frontends.onnx.host.steps import host_step
from modelcc.ir.index import Index
from modelcc.ir.op import broadcast_shapes
from modelcc.ir.types import BOOL, I64, STRING, DType, TensorType


def _texts(*shape: Index) -> TensorType:
    return TensorType(shape, STRING)


def concat(call: Call) -> tuple[str, ...]:
    return host_step(call, "concat", (_texts(*broadcast_shapes(call.shape(), call.shape(1))),))


def split(call: Call) -> tuple[str, ...]:
    """The number of parts is known when the model is called."""
    parts = call.emitter.fresh_dim(f"{'/'.join(call.source)}.parts")
    types = (_texts(*call.shape(), parts), TensorType(call.shape(), I64))
    settings = {
        "delimiter": call.attrs.text("delimiter", ""),
        "maxsplit": call.attrs.integer("maxsplit", -1),
    }
    return host_step(call, "split", types, settings)


def normalize(call: Call) -> tuple[str, ...]:
    """The number of remaining strings is known when the model is called."""
    attrs = call.attrs
    kept = call.emitter.fresh_dim(f"{'/'.join(call.source)}.kept")
    settings = {
        "case": attrs.text("case_change_action", "NONE"),
        "is_case_sensitive": attrs.integer("is_case_sensitive", 0),
        "stopwords": attrs.texts("stopwords", ()),
    }
    return host_step(call, "normalize", (_texts(*call.shape()[:-1], kept),), settings)


def full_match(call: Call) -> tuple[str, ...]:
    pattern = call.attrs.text("pattern", "")
    try:
        machine = matching_machine(pattern)
    except PatternError as error:
        call.fail(f"the regular expression {pattern!r}: {error}")
    return host_step(call, "full_match", (TensorType(call.shape(), BOOL),), machine)


def numbers(call: Call, to: DType) -> str:
    """Parses numbers."""
    (result,) = host_step(call, "to_numbers", (TensorType(call.shape(), to),), {"dtype": to.name})
    return result


TEXTS = table(
    StringConcat=concat, StringSplit=split, StringNormalizer=normalize, RegexFullMatch=full_match
)
