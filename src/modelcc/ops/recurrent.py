"""Recurrent layers over a sequence: RNN, GRU and LSTM, in one or both directions.

Operands and results are described in :mod:`modelcc.ops.recurrence`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from modelcc.ir.op import Op, Sample, require
from modelcc.ir.types import Array, TensorType
from modelcc.ops.arithmetic import Elementwise, Value, of
from modelcc.ops.matmul import MatMul
from modelcc.ops.recurrence import Activation, Recurrent, Weights
from modelcc.ops.samples import bounded, tensor
from modelcc.ops.shape import Concat
from modelcc.ops.views import part

_sample = partial(bounded, (-0.8, 0.8))


def _samples(gates: int, *extra: Sample) -> tuple[Sample, ...]:
    def one(x: TensorType, hidden: int, directions: int, **attributes: object) -> Sample:
        inputs = x.shape[2]
        w = tensor(directions, gates * hidden, inputs)
        r = tensor(directions, gates * hidden, hidden)
        b = tensor(directions, 2 * gates * hidden)
        return _sample(x, w, r, b, **attributes)

    bare = one(tensor(4, 2, 3), 5, 1)
    lengths = np.array([2, 4, 1], np.int32)
    ragged = one(tensor(4, 3, 2), 3, 2, direction="bidirectional")
    return (
        _sample(*bare.operands[:3]),
        one(tensor(4, "n", 3), 5, 1),
        one(tensor(3, 2, 3), 4, 1, direction="reverse"),
        one(tensor(3, 2, 3), 4, 2, direction="bidirectional"),
        _sample(*ragged.operands, lengths, tensor(2, 3, 3), **ragged.attributes),
        one(tensor(2, 2, 3), 4, 1, clip=0.2),
        *extra,
    )


@dataclass(frozen=True)
class RNN(Recurrent):
    """``h = f(x w^T + h r^T + b)`` (Elman, "Finding structure in time", 1990)."""

    samples = _samples(1)

    def step(
        self, gx: Array, states: list[Array], weights: Weights, f: list[Elementwise]
    ) -> list[Array]:
        total = gx + states[0] @ weights.r.T
        if weights.bias is not None:
            total = total + weights.bias[gx.shape[-1] :]
        return [f[0].reference(self.clipped(total))]

    def step_values(
        self, gx: Value, states: list[Value], weights: Weights, f: list[Elementwise]
    ) -> list[Value]:
        total = gx + of(MatMul(), states[0], weights.r)
        return [of(f[0], self.clipped_value(total))]


@dataclass(frozen=True)
class GRU(Recurrent):
    """Gated recurrent unit, gates z, r, h (Cho et al., "Learning phrase representations", 2014).

    ``linear_before_reset`` multiplies by r after the recurrent product instead of before.  Gate h
    is last in any ``order``.
    """

    linear_before_reset: bool = False
    gates: ClassVar[int] = 3
    defaults: ClassVar[tuple[Activation, ...]] = ("Sigmoid", "Tanh")
    samples = _samples(
        3,
        *(
            _sample(*s.operands, **s.attributes, linear_before_reset=True)
            for s in (_samples(3)[0], _samples(3)[4])
        ),
        _sample(*_samples(3)[0].operands, order=(1, 0, 2), linear_before_reset=True),
    )

    def step(
        self, gx: Array, states: list[Array], weights: Weights, f: list[Elementwise]
    ) -> list[Array]:
        (h,) = states
        xz, xr, xh = np.split(gx, 3, axis=-1)
        rz, rr, rh = np.split(weights.r, 3)
        bias = np.zeros_like(gx[0]) if weights.bias is None else weights.bias[gx.shape[-1] :]
        bz, br, bh = np.split(bias, 3)
        z = f[0].reference(self.clipped(xz + h @ rz.T + bz))
        reset = f[0].reference(self.clipped(xr + h @ rr.T + br))
        late = self.linear_before_reset
        share = reset * (h @ rh.T + bh) if late else (reset * h) @ rh.T + bh
        candidate = f[1].reference(self.clipped(xh + share))
        return [(1 - z) * candidate + z * h]

    def step_values(
        self, gx: Value, states: list[Value], weights: Weights, f: list[Elementwise]
    ) -> list[Value]:
        (h,) = states
        size = h.type.shape[-1]
        assert isinstance(size, int)
        late = self.linear_before_reset
        share = of(MatMul(), h, weights.r if late else part(weights.r, 1, 0, 2 * size))
        z, reset = (
            of(
                f[0],
                self.clipped_value(part(gx, 1, g * size, size) + part(share, 1, g * size, size)),
            )
            for g in map(self.place, range(2))
        )
        if late:
            memory = part(share, 1, 2 * size, size)
            memory = reset * (memory if weights.bias is None else memory + weights.bias)
        else:
            memory = of(MatMul(), reset * h, part(weights.r, 1, 2 * size, size))
        candidate = of(f[1], self.clipped_value(part(gx, 1, 2 * size, size) + memory))
        return [(1.0 - z) * candidate + z * h]

    def infer(self, *operands: TensorType | None) -> tuple[TensorType, ...]:
        results = super().infer(*operands)
        require(self.place(2) == 2, f"gate h of a GRU is last, not as in {self.order}")
        return results

    def split_bias(self, bias: Value, hidden: int) -> tuple[Value, Value | None]:
        both, rest = super().split_bias(bias, hidden)
        if not self.linear_before_reset:
            return both, rest
        of_x = part(bias, 0, 2 * hidden, hidden)
        shared = of(Concat(0), part(both, 0, 0, 2 * hidden), of_x)
        return shared, part(bias, 0, 5 * hidden, hidden)


@dataclass(frozen=True)
class LSTM(Recurrent):
    """Long short-term memory, gates i, o, f, c with optional peepholes of i, o, f.

    Hochreiter & Schmidhuber, 1997; Gers et al., "Learning to forget", 2000.  With
    ``input_forget`` the forget gate is ``1 - i``.
    """

    input_forget: bool = False
    gates: ClassVar[int] = 4
    states: ClassVar[int] = 2
    defaults: ClassVar[tuple[Activation, ...]] = ("Sigmoid", "Tanh", "Tanh")
    samples = _samples(
        4,
        _sample(*_samples(4)[1].operands, None, *(tensor(1, "n", 5),) * 2, tensor(1, 15)),
        _sample(*_samples(4)[0].operands, activations=("HardSigmoid", "Relu", "Softsign")),
        _sample(*_samples(4)[1].operands, order=(0, 3, 1, 2)),
    )

    def step(
        self, gx: Array, states: list[Array], weights: Weights, f: list[Elementwise]
    ) -> list[Array]:
        h, c = states
        total = gx + h @ weights.r.T
        if weights.bias is not None:
            total = total + weights.bias[gx.shape[-1] :]
        i, o, forget, candidate = np.split(total, 4, axis=-1)
        peepholes = np.zeros(3 * h.shape[-1], h.dtype)
        pi, po, pf = np.split(peepholes if weights.peepholes is None else weights.peepholes, 3)
        i = f[0].reference(self.clipped(i + pi * c))
        forget = 1 - i if self.input_forget else f[0].reference(self.clipped(forget + pf * c))
        new = forget * c + i * f[1].reference(self.clipped(candidate))
        o = f[0].reference(self.clipped(o + po * new))
        return [o * f[2].reference(new), new]

    def step_values(
        self, gx: Value, states: list[Value], weights: Weights, f: list[Elementwise]
    ) -> list[Value]:
        h, c = states
        size = h.type.shape[-1]
        assert isinstance(size, int)
        total = gx + self.recurrent_share(h, weights)

        def gate(which: int, place: int, memory: Value) -> Value:
            value = part(total, 1, self.place(which) * size, size)
            if weights.peepholes is not None:
                value = value + part(weights.peepholes, 0, place * size, size) * memory
            return of(f[0], self.clipped_value(value))

        i = gate(0, 0, c)
        forget = 1.0 - i if self.input_forget else gate(2, 2, c)
        candidate = of(f[1], self.clipped_value(part(total, 1, self.place(3) * size, size)))
        new = forget * c + i * candidate
        return [gate(1, 1, new) * of(f[2], new), new]


OPS: tuple[type[Op], ...] = (RNN, GRU, LSTM)
