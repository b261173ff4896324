"""Handlers of onnxruntime's forms of dropout (com.microsoft)."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.onnx.call import Call, Handler, table
from modelcc.frontends.onnx.contrib.fused import standard
from modelcc.frontends.onnx.standard.random import dropout
from modelcc.ir.index import Index, floordiv, product
from modelcc.ir.types import U32
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.padding import Pad
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.views import cast, reshaped

WORD = 32
"""Elements whose places in a mask are the bits of a number, the first one the lowest."""


def biased(packed: bool) -> Handler:
    """Dropout of a sum, plus a residual; the mask is ``packed`` or bools."""

    def handler(call: Call) -> tuple[str, ...]:
        total = call.value(0) + call.value(1)
        result, *mask = _dropped(call, total, call.inputs[3:], packed)
        if call.has(2):
            result = (Value(call, result) + call.value(2)).name
        return (result, *mask)

    return handler


def packed_dropout(call: Call) -> tuple[str, ...]:
    """Dropout with a packed mask."""
    return _dropped(call, call.value(0), call.inputs[1:], True)


def _dropped(call: Call, x: Value, rest: tuple[str, ...], packed: bool) -> tuple[str, ...]:
    results = standard(dropout, 13)(call.with_inputs((x.name, *rest)))
    names = (results,) if isinstance(results, str) else tuple(results)
    if len(names) == 1 or not packed:
        return names
    return names[0], _words(call, Value(call, names[1])).name


def _words(call: Call, mask: Value) -> Value:
    """Bits of u32 numbers; those behind the last element are set."""
    count = product(mask.type.shape)
    words = floordiv(count + WORD - 1, WORD)
    missing: Index = words * WORD - count
    bits = cast(reshaped(mask, count), U32)
    filled = reshaped(of(Pad((0,), (missing,), "constant", 1), bits), words, WORD)
    weights = call.literal(np.left_shift(1, np.arange(WORD)).astype(np.uint32))
    return of(ReduceSum((1,), False), filled * weights)


CONTRIB_DROPOUT = table(
    BiasDropout=biased(packed=False),
    BitmaskBiasDropout=biased(packed=True),
    BitmaskDropout=packed_dropout,
)
