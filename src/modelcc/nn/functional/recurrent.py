"""One layer of a recurrent network over a sequence, in one or both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from modelcc.nn.functional.values import joined, permuted, reshaped
from modelcc.ops import recurrent as ops
from modelcc.ops.recurrence import Recurrent
from modelcc.tensor.tensor import Tensor

ORDER_OF_LSTM = (0, 3, 1, 2)
"""Positions of the op's gates i, o, f, c in PyTorch's order i, f, g, o."""
ORDER_OF_GRU = (1, 0, 2)
"""Positions of the op's gates z, r, h in PyTorch's order r, z, n."""


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
    """For x ``[T, N, I]`` and h ``[directions, N, H]``: the sequence, and the last h."""
    names: tuple[Literal["Relu"], ...] = ("Relu",) * len(sides) if nonlinearity == "relu" else ()
    return _layer(ops.RNN(_name(sides), names), x, sides, [h])


def lstm(x: Tensor, sides: Sequence[Direction], h: Tensor, c: Tensor) -> tuple[Tensor, ...]:
    """For x ``[T, N, I]``, h and c ``[directions, N, H]``: the sequence, and the last h and c."""
    return _layer(ops.LSTM(_name(sides), order=ORDER_OF_LSTM), x, sides, [h, c])


def gru(x: Tensor, sides: Sequence[Direction], h: Tensor) -> tuple[Tensor, ...]:
    """For x ``[T, N, I]`` and h ``[directions, N, H]``: the sequence, and the last h."""
    op = ops.GRU(_name(sides), order=ORDER_OF_GRU, linear_before_reset=True)
    return _layer(op, x, sides, [h])


def _name(sides: Sequence[Direction]) -> Literal["forward", "bidirectional"]:
    return "bidirectional" if len(sides) == 2 else "forward"


def _layer(
    op: Recurrent, x: Tensor, sides: Sequence[Direction], states: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    w = _stacked([side.weight_ih for side in sides])
    r = _stacked([side.weight_hh for side in sides])
    biases = [
        joined([side.bias_ih, side.bias_hh], 0)
        for side in sides
        if side.bias_ih is not None and side.bias_hh is not None
    ]
    y, *last = x.results(op, x, w, r, _stacked(biases) if biases else None, None, *states)
    steps, directions, batch, size = y.shape
    return (reshaped(permuted(y, 0, 2, 1, 3), steps, batch, directions * size), *last)


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    return joined([reshaped(t, 1, *t.shape) for t in tensors], 0)
