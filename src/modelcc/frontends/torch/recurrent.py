"""Handlers of recurrent layers, one op for each layer; PyTorch's gates come in another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.torch.aten import Aten, Handler, Handlers, overloads
from modelcc.ir.op import Builder
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.recurrence import Direction, Recurrent
from modelcc.ops.recurrent import GRU, LSTM, RNN
from modelcc.ops.shape import Concat
from modelcc.ops.views import part, permuted, reshaped

LAYERS: Mapping[str, Recurrent] = MappingProxyType(
    {
        "lstm": LSTM(order=(0, 3, 1, 2)),  # i, o, f, c among i, f, g, o
        "gru": GRU(order=(1, 0, 2), linear_before_reset=True),  # z, r, h among r, z, n
        "rnn_tanh": RNN(),
        "rnn_relu": RNN(activations=("Relu",)),
    }
)
"""The op of each kind of layer, in one direction."""


def _network(kind: str) -> Handler:
    """The handler of a whole network of layers of one ``kind``."""

    def network(
        call: Aten, x: Value, states: Value | Sequence[Value], params: Sequence[Value],
        has_biases: bool, layers: int, dropout: float, train: bool, bidirectional: bool,
        batch_first: bool,
    ) -> Sequence[Value]:  # fmt: skip
        if dropout and train and layers > 1:
            unsupported(f"dropout of {dropout} between layers")
        directions = 2 if bidirectional else 1
        width = (4 if has_biases else 2) * directions
        if len(params) != width * layers:
            unsupported("projections of its states")
        if batch_first:
            x = permuted(x, 1, 0, 2)
        first = [states] if isinstance(states, Value) else states
        last: list[list[Value]] = []
        for n in range(layers):
            own = [part(s, 0, n * directions, directions) for s in first]
            x, *ends = layer(call, kind, x, own, params[n * width : (n + 1) * width])
            last.append(ends)
        if batch_first:
            x = permuted(x, 1, 0, 2)
        return [x, *(_joined(column) for column in zip(*last, strict=True))]

    return network


def layer(
    build: Builder, kind: str, x: Value, states: Sequence[Value], params: Sequence[Value],
    parts: bool = False,
) -> list[Value]:  # fmt: skip
    """The sequence ``[T, N, D*H]`` and the last states of one layer, in all its directions.

    With ``parts`` the layer is decomposed in ``build`` immediately.
    """
    plain = LAYERS[kind]
    directions = number_of(states[0].type.shape[0], "direction")
    both: Direction = "bidirectional" if directions == 2 else "forward"
    op = replace(plain, direction=both, activations=plain.activations * directions)
    each = len(params) // directions
    own = [params[d * each : (d + 1) * each] for d in range(directions)]
    operands = (x, *_weights(own), None, *states)
    names = ["" if v is None else v.name for v in operands]
    results = op.decompose(build, *names) if parts else build.add(op, *names)
    y, *last = (Value(build, name) for name in results)
    steps, _, batch, size = y.type.shape
    return [reshaped(permuted(y, 0, 2, 1, 3), steps, batch, directions * size), *last]


def _weights(directions: Sequence[Sequence[Value]]) -> tuple[Value, Value, Value | None]:
    """Weights of the input, of the states, and all biases, stacked by direction."""
    w, r = (_stacked([params[i] for params in directions]) for i in (0, 1))
    if len(directions[0]) == 2:
        return w, r, None
    return w, r, _stacked([of(Concat(0), *params[2:]) for params in directions])


def _stacked(values: Sequence[Value]) -> Value:
    return _joined([reshaped(v, 1, *v.type.shape) for v in values])


def _joined(values: Sequence[Value]) -> Value:
    return values[0] if len(values) == 1 else of(Concat(0), *values)


RECURRENT: Handlers = overloads({f"{kind}.input": _network(kind) for kind in LAYERS})
