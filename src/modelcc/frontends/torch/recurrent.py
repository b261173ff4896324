"""Handlers of recurrent layers, one op for each layer; PyTorch's gates come in another order."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.torch.aten import Aten, Handlers, overloads
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.recurrence import Direction, Recurrent
from modelcc.ops.recurrent import GRU, LSTM, RNN
from modelcc.ops.shape import Concat
from modelcc.ops.views import part, permuted, reshaped

GATES_OF_LSTM = (0, 3, 1, 2)
"""Where i, o, f, c stand among PyTorch's i, f, g, o."""
GATES_OF_GRU = (1, 0, 2)
"""Where z, r, h stand among PyTorch's r, z, n."""


def lstm(
    call: Aten, x: Value, states: Sequence[Value], params: Sequence[Value], has_biases: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Sequence[Value]:  # fmt: skip
    _require_no_dropout(dropout, train, layers)
    op = LSTM(direction=_direction(bidirectional))
    return _layers(call, op, GATES_OF_LSTM, x, states, params, has_biases, layers, batch_first)


def gru(
    call: Aten, x: Value, state: Value, params: Sequence[Value], has_biases: bool, layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Sequence[Value]:  # fmt: skip
    _require_no_dropout(dropout, train, layers)
    op = GRU(direction=_direction(bidirectional), linear_before_reset=True)
    return _layers(call, op, GATES_OF_GRU, x, [state], params, has_biases, layers, batch_first)


def tanh_network(
    call: Aten, x: Value, state: Value, params: Sequence[Value], has_biases: bool, layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Sequence[Value]:  # fmt: skip
    _require_no_dropout(dropout, train, layers)
    op = RNN(direction=_direction(bidirectional))
    return _layers(call, op, (0,), x, [state], params, has_biases, layers, batch_first)


def relu_network(
    call: Aten, x: Value, state: Value, params: Sequence[Value], has_biases: bool, layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> Sequence[Value]:  # fmt: skip
    _require_no_dropout(dropout, train, layers)
    direction = _direction(bidirectional)
    op = RNN(direction, ("Relu",) * (2 if bidirectional else 1))
    return _layers(call, op, (0,), x, [state], params, has_biases, layers, batch_first)


def _require_no_dropout(dropout: float, train: bool, layers: int) -> None:
    if dropout and train and layers > 1:
        unsupported(f"dropout of {dropout} between layers")


def _direction(bidirectional: bool) -> Direction:
    return "bidirectional" if bidirectional else "forward"


def _layers(
    call: Aten, op: Recurrent, gates: Sequence[int], x: Value, states: Sequence[Value],
    params: Sequence[Value], has_biases: bool, layers: int, batch_first: bool,
) -> Sequence[Value]:  # fmt: skip
    """All layers: the sequence, and the last states of each."""
    directions = 2 if op.direction == "bidirectional" else 1
    each = 4 if has_biases else 2
    if len(params) != each * directions * layers:
        unsupported("projections of its states")
    if batch_first:
        x = permuted(x, 1, 0, 2)
    last: list[list[Value]] = []
    for layer in range(layers):
        start = layer * directions
        own = [params[(start + d) * each : (start + d + 1) * each] for d in range(directions)]
        firsts = [part(s, 0, start, directions) for s in states]
        y, *ends = call.many(op, x, *_weights(own, gates), None, *firsts)
        steps, _, batch, size = y.type.shape
        x = reshaped(permuted(y, 0, 2, 1, 3), steps, batch, directions * size)
        last.append(ends)
    if batch_first:
        x = permuted(x, 1, 0, 2)
    return [x, *(_joined(column) for column in zip(*last, strict=True))]


def _weights(
    directions: Sequence[Sequence[Value]], gates: Sequence[int]
) -> tuple[Value, Value, Value | None]:
    """Weights of the input, of the states, and all biases, stacked by direction."""
    ordered = [[_reordered(p, gates) for p in params] for params in directions]
    w, r = (_stacked([params[i] for params in ordered]) for i in (0, 1))
    if len(ordered[0]) == 2:
        return w, r, None
    return w, r, _stacked([of(Concat(0), *params[2:]) for params in ordered])


def _reordered(p: Value, gates: Sequence[int]) -> Value:
    if len(gates) == 1:
        return p
    size = number_of(p.type.shape[0], "state") // len(gates)
    return of(Concat(0), *(part(p, 0, g * size, size) for g in gates))


def _stacked(values: Sequence[Value]) -> Value:
    return _joined([reshaped(v, 1, *v.type.shape) for v in values])


def _joined(values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else of(Concat(0), *values)


RECURRENT: Handlers = overloads(
    {
        "lstm.input": lstm,
        "gru.input": gru,
        "rnn_tanh.input": tanh_network,
        "rnn_relu.input": relu_network,
    }
)
