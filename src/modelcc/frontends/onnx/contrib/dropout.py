"""Handlers of onnxruntime's forms of dropout (com.microsoft)."""

from __future__ import annotations

from functools import partial

import numpy as np

from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.contrib.fused import plus, standard
from modelcc.frontends.onnx.contrib.operands import operators
from modelcc.frontends.onnx.standard.random import dropout
from modelcc.ir.index import Index, floordiv, product
from modelcc.ir.types import U32
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.padding import Pad
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.views import cast, reshaped

WORD = 32
"""Mask elements packed into the bits of a number, the first one the lowest."""


def biased(
    call: Call, x: Value, bias: Value, residual: Value | None, *_: Value | None,
    packed: bool = False,
) -> list[Value]:  # fmt: skip
    """Dropout of a sum, plus a residual; the mask is ``packed`` or bools."""
    result, *mask = _dropped(call, x + bias, call.inputs[3:], packed)
    return [plus(result, residual), *mask]


def packed_dropout(call: Call, x: Value, *_: Value | None) -> list[Value]:
    """Dropout with a packed mask."""
    return _dropped(call, x, call.inputs[1:], True)


def _dropped(call: Call, x: Value, rest: tuple[str, ...], packed: bool) -> list[Value]:
    found = standard(dropout, 13)(call.with_inputs((x.name, *rest)))
    names = (found,) if isinstance(found, str) else found
    result, *mask = (Value(call, name) for name in names)
    return [result, *(_words(call, m) if packed else m for m in mask)]


def _words(call: Call, mask: Value) -> Value:
    """The mask packed into u32 words; bits after the last element are set."""
    count = product(mask.type.shape)
    words = floordiv(count + WORD - 1, WORD)
    missing: Index = words * WORD - count
    bits = cast(reshaped(mask, count), U32)
    filled = reshaped(of(Pad((0,), (missing,), "constant", 1), bits), words, WORD)
    weights = call.literal(np.left_shift(1, np.arange(WORD)).astype(np.uint32))
    return of(ReduceSum((1,), False), filled * weights)


CONTRIB_DROPOUT = operators(
    BiasDropout=("data bias residual? ratio? training_mode?", biased),
    BitmaskBiasDropout=("data bias residual? ratio? training_mode?", partial(biased, packed=True)),
    BitmaskDropout=("data ratio? training_mode?", packed_dropout),
)
