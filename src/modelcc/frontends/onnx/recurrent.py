"""Handlers of recurrent layers: RNN, GRU, LSTM."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.frontends.onnx.errors import unsupported
from modelcc.ir.types import I32
from modelcc.ops.elementwise import Cast
from modelcc.ops.recurrence import Activation, Direction, Recurrent
from modelcc.ops.recurrent import GRU, LSTM, RNN
from modelcc.ops.shape import Transpose

ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
USUAL: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01, 0.0), "Elu": (1.0, 0.0)}
)
"""The alpha and beta that ONNX gives an activation by default; those without take none."""
LENGTHS, FIRST_STATE, PEEPHOLES = 4, 5, 7


def rnn(call: Call) -> tuple[str, ...]:
    direction, activations, clip = _shared(call)
    return _layer(call, RNN(direction, activations, clip))


def gru(call: Call) -> tuple[str, ...]:
    direction, activations, clip = _shared(call)
    late = call.attrs.flag("linear_before_reset")
    return _layer(call, GRU(direction, activations, clip, late))


def lstm(call: Call) -> tuple[str, ...]:
    direction, activations, clip = _shared(call)
    return _layer(call, LSTM(direction, activations, clip, call.attrs.flag("input_forget")))


def _shared(call: Call) -> tuple[Direction, tuple[Activation, ...], float | None]:
    attrs = call.attrs
    direction: Direction = call.choice(attrs.text("direction", "forward"), DIRECTIONS, "direction")
    names: tuple[Activation, ...] = tuple(
        call.choice(_spelling(name), ACTIVATIONS, "activation")
        for name in attrs.texts("activations", ())
    )
    usual = [USUAL[name] for name in names if name in USUAL]
    given = attrs.numbers("activation_alpha", ()), attrs.numbers("activation_beta", ())
    for numbers, parameter in zip(given, ("alpha", "beta"), strict=True):
        defaults = [pair[0 if parameter == "alpha" else 1] for pair in usual]
        if numbers and list(numbers) != defaults[: len(numbers)]:
            unsupported(f"activation_{parameter} {list(numbers)} (usual: {defaults})")
    return direction, names, attrs.number("clip") if attrs.has("clip") else None


def _spelling(name: str) -> str:
    """ONNX takes names in any case."""
    return next((known for known in ACTIVATIONS if known.lower() == name.lower()), name)


def _layer(call: Call, op: Recurrent) -> tuple[str, ...]:
    """The layer on operands of layout 0, its results turned back if the layout is 1."""
    batch_first = call.attrs.integer("layout", 0) == 1
    operands = list(call.inputs)
    if call.has(LENGTHS):
        operands[LENGTHS] = _as_i32(call, operands[LENGTHS])
    if batch_first:
        operands = [
            call.emit(Transpose((1, 0, 2)), name)
            if name and (i == 0 or FIRST_STATE <= i < PEEPHOLES)
            else name
            for i, name in enumerate(operands)
        ]
    y, *states = call.add(op, *operands)
    if not batch_first:
        return (y, *states)
    turned = (call.emit(Transpose((1, 0, 2)), state) for state in states)
    return (call.emit(Transpose((2, 0, 1, 3)), y), *turned)


def _as_i32(call: Call, lengths: str) -> str:
    return lengths if call.type_of(lengths).dtype == I32 else call.emit(Cast(I32), lengths)


RECURRENT: Handlers = MappingProxyType({"RNN": rnn, "GRU": gru, "LSTM": lstm})
