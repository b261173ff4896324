"""Recurrent layers; their operands are those of ONNX."""

from __future__ import annotations

import numpy as np

from modelcc.exporters.onnx.builder import OnnxValue
from modelcc.exporters.onnx.writing import OnnxWriting, Settings
from modelcc.ir.types import I32, I64
from modelcc.ops.recurrence import USUAL, Recurrent
from modelcc.ops.recurrent import GRU, LSTM

_LENGTHS = 4
"""The operand with one element per sequence."""


def layer(at: OnnxWriting, op: Recurrent) -> tuple[OnnxValue, ...] | None:
    """A layer with a static number of states."""
    hidden = at.type(2).shape[-1]
    if not isinstance(hidden, int):
        return None
    operands = [at.cast(x, I32) if n == _LENGTHS and x else x for n, x in enumerate(at.inputs)]
    if op.order:
        sets = zip(operands[1:4], (1, 1, 2), strict=False)
        operands[1:4] = [x and _in_order(at, op, x, hidden, count) for x, count in sets]
    return at.build.node_of(
        type(op).__name__,
        operands,
        [t.dtype for t in at.results],
        hidden_size=hidden,
        direction=op.direction,
        activations=list(op.activations) or None,
        clip=op.clip,
        **_parameters(op),
        **_own(op),
    )


def _in_order(
    at: OnnxWriting, op: Recurrent, weights: OnnxValue, hidden: int, sets: int
) -> OnnxValue:
    """``weights`` with the gates in ONNX's order; ``sets`` is the number of sets of all gates."""
    gates = np.arange(sets * op.gates * hidden).reshape(sets, op.gates, hidden)
    rows = gates[:, [op.place(g) for g in range(op.gates)]].reshape(-1)
    return at.node("Gather", weights, at.constant(rows, I64), axis=1)


def _parameters(op: Recurrent) -> dict[str, list[float] | None]:
    """Parameters of all activations, concatenated."""
    lists: tuple[list[float], list[float]] = ([], [])
    for name, given in zip(op.activations, op.parameters, strict=False):
        for kind, number in zip(lists, given or USUAL.get(name, ()), strict=False):
            kind.append(number)
    alpha, beta = lists
    return {"activation_alpha": alpha or None, "activation_beta": beta or None}


def _own(op: Recurrent) -> Settings:
    match op:
        case GRU():
            return {"linear_before_reset": int(op.linear_before_reset)}
        case LSTM():
            return {"input_forget": int(op.input_forget)}
        case _:
            return {}
