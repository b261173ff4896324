"""Recurrent layers: RNN, LSTM and GRU, any number of layers, in one or both directions."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index
from modelcc.nn import init
from modelcc.nn.dropout import Keyed, chance
from modelcc.nn.functional.dropout import dropout
from modelcc.nn.functional.recurrent import Direction, gru, lstm, rnn
from modelcc.nn.functional.values import as_tensor, filled, joined, part, permuted, reshaped
from modelcc.nn.init import Rng
from modelcc.nn.roles import Parameter
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.promotion import named_type
from modelcc.tensor.tensor import Tensor

PARTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
"""Parameters of a layer's direction: of the input, and of the state."""


class _Recurrent(Keyed):
    """Base: parameters ``weight_ih_l0`` and so on, and the layers in sequence."""

    gates: ClassVar[int]
    states: ClassVar[int] = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        dtype: Any = "f32",
        rng: Rng = None,
    ) -> None:
        """``dropout`` is between layers; all parameters are uniform within ``1 /
        sqrt(hidden_size)``."""
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.bias, self.batch_first = bias, batch_first
        self.dropout, self.bidirectional = chance(dropout), bidirectional
        self._dtype = named_type(dtype)
        self.reset_parameters(init.generator(rng))

    def reset_parameters(self, rng: np.random.Generator) -> None:
        """Re-initialises the parameters, and the random key."""
        bound = 1 / math.sqrt(self.hidden_size)
        rows = self.gates * self.hidden_size
        for layer in range(self.num_layers):
            wide = self.input_size if layer == 0 else self.hidden_size * len(self._sides())
            shapes = ((rows, wide), (rows, self.hidden_size), (rows,), (rows,))
            for side in self._sides():
                for name, shape in zip(PARTS, shapes, strict=True):
                    if len(shape) > 1 or self.bias:
                        drawn = init.uniform(shape, -bound, bound, rng=rng, dtype=self._dtype)
                        setattr(self, f"{name}_l{layer}{side}", Parameter(drawn))
        if self.dropout:
            self.draw_key(rng)

    def _sides(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def _direction(self, layer: int, side: str) -> Direction:
        names = PARTS if self.bias else PARTS[:2]
        found = [getattr(self, f"{name}_l{layer}{side}") for name in names]
        return Direction(*found)

    def forward(self, x: Any, initial: Any = None) -> tuple[Tensor, Any]:
        """The sequence of states of the last layer, and the last states of all layers.

        x is ``[T, N, I]``, with ``batch_first`` ``[N, T, I]``, or ``[T, I]``; ``initial`` h, for
        LSTM a pair with c, is ``[layers * directions, N, H]``, and 0 if None.
        """
        x = as_tensor(x)
        self._check(x)
        if x.ndim == 2:
            return self._single(x, initial)
        x = permuted(x, 1, 0, 2) if self.batch_first else x
        first = self._initial(x, initial)
        last: list[tuple[Tensor, ...]] = []
        count = len(self._sides())
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = dropout(x, self.dropout, self.training, key=self.moved_key(self.dropout))
            sides = [self._direction(layer, side) for side in self._sides()]
            own = [part(state, 0, layer * count, count) for state in first]
            x, *ends = self.layer(x, sides, own)
            last.append(tuple(ends))
        states = tuple(joined(column, 0) for column in zip(*last, strict=True))
        x = permuted(x, 1, 0, 2) if self.batch_first else x
        return x, states[0] if self.states == 1 else states

    def layer(self, x: Tensor, sides: list[Direction], first: list[Tensor]) -> tuple[Tensor, ...]:
        """The sequence ``[T, N, directions * H]`` of a layer, and its last states."""
        raise NotImplementedError(type(self).__name__)

    def _check(self, x: Tensor) -> None:
        known = not isinstance(x.shape[-1], int) or x.shape[-1] == self.input_size
        if x.ndim not in (2, 3) or not known:
            order = "batch, time" if self.batch_first else "time, batch"
            raise ModelError(f"{type(self).__name__} needs [{order}, {self.input_size}], not "
                             f"{x.type}", callers_line())  # fmt: skip

    def _single(self, x: Tensor, initial: Any) -> tuple[Tensor, Any]:
        """For one sequence without a batch axis."""
        batch = 0 if self.batch_first else 1
        wide = reshaped(x, *x.shape[:batch], 1, *x.shape[batch:])
        given = None
        if initial is not None:
            pair = initial if self.states == 2 else (initial,)
            first = [as_tensor(s) for s in pair]
            given = tuple(reshaped(s, s.shape[0], 1, s.shape[1]) for s in first)
        y, last = self.forward(wide, given if given is None or self.states == 2 else given[0])
        ends = last if self.states == 2 else (last,)
        states = tuple(reshaped(s, s.shape[0], s.shape[2]) for s in ends)
        return reshaped(y, x.shape[0], y.shape[2]), states if self.states == 2 else states[0]

    def _initial(self, x: Tensor, initial: Any) -> list[Tensor]:
        rows = self.num_layers * len(self._sides())
        shape: tuple[Index, ...] = (rows, x.shape[1], self.hidden_size)
        if initial is None:
            return [filled(x, 0.0, *shape)] * self.states
        given = [as_tensor(s) for s in (initial if self.states == 2 else (initial,))]
        wrong = [s for s in given if s.ndim != 3 or (s.shape[0], s.shape[2]) != (rows, shape[2])]
        if wrong or len(given) != self.states:
            types = ", ".join(str(s.type) for s in given)
            raise ModelError(f"initial states {types} of {type(self).__name__}, which needs "
                             f"{self.states} of [{rows}, batch, {self.hidden_size}]",
                             callers_line())  # fmt: skip
        return given


class RNN(_Recurrent):
    """``h = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh)`` (Elman, 1990), or by relu."""

    gates = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        *,
        dtype: Any = "f32",
        rng: Rng = None,
    ) -> None:
        """``nonlinearity`` is tanh or relu."""
        if nonlinearity not in ("tanh", "relu"):
            raise ModelError(f"nonlinearity {nonlinearity!r}", callers_line(), "tanh or relu")
        self.nonlinearity: Literal["tanh", "relu"] = nonlinearity
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            dtype=dtype, rng=rng,
        )  # fmt: skip

    def layer(self, x: Tensor, sides: list[Direction], first: list[Tensor]) -> tuple[Tensor, ...]:
        return rnn(x, sides, first[0], self.nonlinearity)


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter & Schmidhuber, 1997), gates i, f, g, o.

    States are pairs of h and c.
    """

    gates = 4
    states = 2

    def layer(self, x: Tensor, sides: list[Direction], first: list[Tensor]) -> tuple[Tensor, ...]:
        return lstm(x, sides, first[0], first[1])


class GRU(_Recurrent):
    """Gated recurrent unit (Cho et al., 2014), gates r, z, n; r after the recurrent product."""

    gates = 3

    def layer(self, x: Tensor, sides: list[Direction], first: list[Tensor]) -> tuple[Tensor, ...]:
        return gru(x, sides, first[0])
