"""One layer of a recurrent network over a sequence, in one or both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from modelcc.nn.functional.values import joined, number, part, permuted, reshaped
from modelcc.ops import recurrent as ops
from modelcc.ops.recurrence import Recurrent
from modelcc.tensor.tensor import Tensor

GATES_OF_LSTM = (0, 3, 1, 2)
"""Where i, o, f, c of the op stand among PyTorch's i, f, g, o."""
GATES_OF_GRU = (1, 0, 2)
"""Where z, r, h of the op stand among PyTorch's r, z, n."""


@dataclass(frozen=True)
class Direction:
    """Parameters of one direction, gates in PyTorch's order."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None


def rnn(
    x: Tensor, sides: Sequence[Direction], h: Tensor, nonlinearity: Literal["tanh", "relu"] = "tanh"
) -> tuple[Tensor, ...]:
    """Of x ``[T, N, I]`` and h ``[directions, N, H]``: the sequence, and the last h."""
    names: tuple[Literal["Relu"], ...] = ("Relu",) * len(sides) if nonlinearity == "relu" else ()
    return _layer(ops.RNN(_name(sides), names), (0,), x, sides, [h])


def lstm(x: Tensor, sides: Sequence[Direction], h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """Of x ``[T, N, I]``, h and c ``[directions, N, H]``: the sequence, and the last h and c."""
    return _layer(ops.LSTM(_name(sides)), GATES_OF_LSTM, x, sides, [h, c])


def gru(x: Tensor, sides: Sequence[Direction], h: Tensor) -> tuple[Tensor, ...]:
    """Of x ``[T, N, I]`` and h ``[directions, N, H]``: the sequence, and the last h."""
    op = ops.GRU(_name(sides), linear_before_reset=True)
    return _layer(op, GATES_OF_GRU, x, sides, [h])


def _name(sides: Sequence[Direction]) -> Literal["forward", "bidirectional"]:
    return "bidirectional" if len(sides) == 2 else "forward"


def _layer(
    op: Recurrent, gates: Sequence[int], x: Tensor, sides: Sequence[Direction],
    states: Sequence[Tensor],
) -> tuple[Tensor, ...]:  # fmt: skip
    w = _stacked([_reordered(side.weight_ih, gates) for side in sides])
    r = _stacked([_reordered(side.weight_hh, gates) for side in sides])
    biases = [_biases(side, gates) for side in sides]
    known = [b for b in biases if b is not None]
    y, *last = x.results(op, x, w, r, _stacked(known) if known else None, None, *states)
    steps, directions, batch, size = y.shape
    return (reshaped(permuted(y, 0, 2, 1, 3), steps, batch, directions * size), *last)


def _biases(side: Direction, gates: Sequence[int]) -> Tensor | None:
    if side.bias_ih is None or side.bias_hh is None:
        return None
    return joined([_reordered(side.bias_ih, gates), _reordered(side.bias_hh, gates)], 0)


def _reordered(p: Tensor, gates: Sequence[int]) -> Tensor:
    size = number(p.shape[0], "a number of units") // len(gates)
    return joined([part(p, 0, g * size, size) for g in gates], 0) if len(gates) > 1 else p


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    return joined([reshaped(t, 1, *t.shape) for t in tensors], 0)
