"""Handlers of recurrent layers: RNN, GRU, LSTM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.call import Call, table
from modelcc.ir.types import I32
from modelcc.ops.elementwise import Cast
from modelcc.ops.recurrence import USUAL, Activation, Direction, Recurrent
from modelcc.ops.recurrent import GRU, LSTM, RNN
from modelcc.ops.shape import Transpose

ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
LENGTHS, FIRST_STATE, PEEPHOLES = 4, 5, 7


def _gru(call: Call) -> GRU:
    late = call.attrs.flag("linear_before_reset")
    return GRU(linear_before_reset=late, **_shared(call))


def lstm_layer(call: Call) -> LSTM:
    """The op described by the attributes."""
    return LSTM(input_forget=call.attrs.flag("input_forget"), **_shared(call))


def _shared(call: Call) -> dict[str, Any]:
    attrs = call.attrs
    names: tuple[Activation, ...] = tuple(
        call.choice(_spelling(name), ACTIVATIONS, "activation")
        for name in attrs.texts("activations", ())
    )
    return {
        "direction": call.option("direction", DIRECTIONS, "forward"),
        "activations": names,
        "clip": attrs.number("clip") if attrs.has("clip") else None,
        "parameters": _parameters(call, names),
    }


def _parameters(call: Call, names: Sequence[Activation]) -> tuple[tuple[float, ...], ...]:
    """The parameters of each activation: those with parameters consume the next ones of the
    lists."""
    kinds = [iter(call.attrs.numbers(f"activation_{kind}", ())) for kind in ("alpha", "beta")]
    if not call.attrs.has("activation_alpha") and not call.attrs.has("activation_beta"):
        return ()
    return tuple(
        tuple(next(kind, usual) for kind, usual in zip(kinds, USUAL.get(name, ()), strict=False))
        for name in names
    )


def _spelling(name: str) -> str:
    """ONNX accepts names in any case."""
    return next((known for known in ACTIVATIONS if known.lower() == name.lower()), name)


def _layer(call: Call, op: Recurrent) -> tuple[str, ...]:
    """The layer on operands of layout 0, its results transposed if the layout is 1."""
    batch_first = call.attrs.integer("layout", 0) == 1
    operands = list(call.inputs)
    if call.has(LENGTHS):
        operands[LENGTHS] = as_i32(call, operands[LENGTHS])
    if batch_first:
        operands = [
            call.emit(Transpose((1, 0, 2)), name)
            if name and (i == 0 or FIRST_STATE <= i < PEEPHOLES)
            else name
            for i, name in enumerate(operands)
        ]
    hidden = call.type_of(operands[2]).shape[-1] if call.type_of(operands[2]).rank else 0
    if not isinstance(hidden, int) and op.gates > 1:
        unsupported(f"the size of its state, {hidden}, is not known before the model runs")
    if call.attrs.integer("hidden_size", 0) not in (0, hidden) and isinstance(hidden, int):
        call.fail(f"hidden_size differs from that of its weights, {hidden}")
    operands[0] = _of_one_batch(call, operands)
    y, *states = call.add(op, *operands)
    if not batch_first:
        return (y, *states)
    turned = (call.emit(Transpose((1, 0, 2)), state) for state in states)
    return (call.emit(Transpose((2, 0, 1, 3)), y), *turned)


def _of_one_batch(call: Call, operands: Sequence[str]) -> str:
    """x with the batch extent of the initial states, if its own is symbolic."""
    x, *rest = (call.type_of(n).shape if n else () for n in operands)
    states = [shape for shape in rest[FIRST_STATE - 1 : PEEPHOLES - 1] if len(shape) == 3]
    numbers = [shape[1] for shape in states if isinstance(shape[1], int)]
    if len(x) != 3 or isinstance(x[1], int) or not numbers:
        return operands[0]
    return call.sized(operands[0], 1, numbers[0])


def as_i32(call: Call, lengths: str) -> str:
    """Lengths in the ops' dtype."""
    return lengths if call.type_of(lengths).dtype == I32 else call.emit(Cast(I32), lengths)


RECURRENT = table(
    RNN=lambda call: _layer(call, RNN(**_shared(call))),
    GRU=lambda call: _layer(call, _gru(call)),
    LSTM=lambda call: _layer(call, lstm_layer(call)),
)
