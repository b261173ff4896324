"""What recurrent layers share: the loop over time, its unrolling, and their operands.

Operands are those of ONNX, layout 0: x ``[T, N, I]``, w ``[D, G*H, I]``, r ``[D, G*H, H]``,
b ``[D, 2*G*H]`` (of w, then of r), lengths ``[N]`` (i32), initial h ``[D, N, H]``; LSTM also takes
initial c and peepholes p ``[D, 3*H]``.  D counts directions, G gates.  Results are
y ``[T, D, N, H]`` (zero after the end of a sequence), the last h, and for LSTM the last c.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from modelcc.ir.index import Index
from modelcc.ir.op import Builder, ModelError, Op, require, same_dtype
from modelcc.ir.types import Array, TensorType
from modelcc.ops.accumulate import require_equal, require_float
from modelcc.ops.activation import Clip, Elu, HardSigmoid, LeakyRelu, Relu, Softplus, Softsign
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import Reshape
from modelcc.ops.comparison import Greater, where
from modelcc.ops.generate import Full
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Concat, Transpose
from modelcc.ops.slicing import Slice
from modelcc.ops.transcendental import Sigmoid, Tanh

Direction = Literal["forward", "reverse", "bidirectional"]
Activation = Literal[
    "Sigmoid", "Tanh", "Relu", "HardSigmoid", "LeakyRelu", "Elu", "Softsign", "Softplus"
]


def activation(name: Activation) -> Op:
    """The op of an activation, with the defaults of ONNX."""
    match name:
        case "Sigmoid":
            return Sigmoid()
        case "Tanh":
            return Tanh()
        case "Relu":
            return Relu()
        case "HardSigmoid":
            return HardSigmoid(0.2, 0.5)
        case "LeakyRelu":
            return LeakyRelu(0.01)
        case "Elu":
            return Elu(1.0)
        case "Softsign":
            return Softsign()
        case "Softplus":
            return Softplus()


@dataclass(frozen=True)
class Weights:
    """Parameters of one direction, as arrays or values; ``bias`` holds that of w, then of r."""

    w: Any
    r: Any
    bias: Any | None
    peepholes: Any | None


@dataclass(frozen=True)
class Recurrent(Op):
    """Base of the recurrent layers: checks, the loop over time, and its unrolling.

    ``activations`` holds those of every gate, for each direction one after the other.  ``clip``
    limits what goes into them (None: no limit).
    """

    direction: Direction = "forward"
    activations: tuple[Activation, ...] = ()
    clip: float | None = None
    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1
    defaults: ClassVar[tuple[Activation, ...]] = ("Tanh",)

    @property
    def directions(self) -> int:
        """2 if bidirectional, else 1."""
        return 2 if self.direction == "bidirectional" else 1

    def functions(self, which: int) -> list[Op]:
        """Activations of direction ``which``."""
        names = self.activations or self.defaults * self.directions
        count = len(self.defaults)
        return [activation(n) for n in names[which * count : (which + 1) * count]]

    def backwards(self, which: int) -> bool:
        """Whether direction ``which`` reads the sequence from its end."""
        return self.direction == "reverse" or which == 1

    def step(self, gx: Array, states: list[Array], weights: Weights, f: list[Op]) -> list[Array]:
        """States after one step whose share of x, biases of w included, is ``gx`` ``[N, G*H]``."""
        raise NotImplementedError(self.mnemonic())

    def step_values(
        self, gx: Value, states: list[Value], weights: Weights, f: list[Op]
    ) -> list[Value]:
        """:meth:`step` as graph ops."""
        raise NotImplementedError(self.mnemonic())

    def infer(self, *operands: TensorType | None) -> tuple[TensorType, ...]:
        name = type(self).__name__
        x, w, r, b, lengths, *rest = (*operands, *(None,) * (8 - len(operands)))
        if x is None or w is None or r is None:
            raise ModelError(f"{name} needs x, w and r")
        dtype = same_dtype(*(t for t in (x, w, r, b, *rest) if t is not None))
        require_float(dtype, name)
        require(x.rank == 3, f"{name} needs x [time, batch, inputs], not {x}")
        hidden = r.shape[-1]
        expected = {
            "weights": (w, (self.directions, self.gates * hidden, x.shape[2])),
            "recurrent weights": (r, (self.directions, self.gates * hidden, hidden)),
            "bias": (b, (self.directions, 2 * self.gates * hidden)),
            "lengths": (lengths, x.shape[1:2]),
            "initial h": (rest[0], (self.directions, x.shape[1], hidden)),
            "initial c": (rest[1], (self.directions, x.shape[1], hidden)),
            "peepholes": (rest[2], (self.directions, 3 * hidden)),
        }
        for what, (given, shape) in expected.items():
            _require_shape(f"{what} of {name}", given, shape)
        require(
            len(self.activations) in (0, len(self.defaults) * self.directions),
            f"{name} got {len(self.activations)} activations",
            f"give {len(self.defaults)} per direction, or none for the usual ones",
        )
        last = TensorType((self.directions, x.shape[1], hidden), dtype)
        y = TensorType((x.shape[0], self.directions, x.shape[1], hidden), dtype)
        return (y, *(last,) * self.states)

    def clipped(self, x: Array) -> Array:
        """``x`` within the limits."""
        return x if self.clip is None else np.clip(x, -self.clip, self.clip)

    def clipped_value(self, x: Value) -> Value:
        """:meth:`clipped` as a graph op."""
        return x if self.clip is None else of(Clip(-self.clip, self.clip), x)

    def reference(self, *operands: Array | None) -> tuple[Array, ...]:
        x, w, r, b, lengths, *rest = (*operands, *(None,) * (8 - len(operands)))
        assert x is not None and w is not None and r is not None
        time, batch, hidden = x.shape[0], x.shape[1], r.shape[-1]
        y = np.zeros((time, self.directions, batch, hidden), x.dtype)
        last = [np.zeros((self.directions, batch, hidden), x.dtype) for _ in range(self.states)]
        for d in range(self.directions):
            states = [
                np.zeros((batch, hidden), x.dtype) if s is None else s[d]
                for s in rest[: self.states]
            ]
            weights = Weights(
                w[d], r[d], None if b is None else b[d], None if rest[2] is None else rest[2][d]
            )
            gx = x @ w[d].T
            if b is not None:
                gx = gx + b[d][: self.gates * hidden]
            for t in reversed(range(time)) if self.backwards(d) else range(time):
                new = self.step(gx[t], states, weights, self.functions(d))
                alive = np.ones((batch, 1), bool) if lengths is None else lengths[:, None] > t
                states = [np.where(alive, n, s) for n, s in zip(new, states, strict=True)]
                y[t, d] = np.where(alive, new[0], 0)
            for final, state in zip(last, states, strict=True):
                final[d] = state
        return y, *last

    def decompose(self, build: Builder, *operands: str) -> tuple[str, ...]:
        """Every step written out; the length of the sequence must be a number."""
        names = (*operands, *("",) * (8 - len(operands)))
        x, w, r, b, lengths, *rest = (Value(build, n) if n else None for n in names)
        assert x is not None and w is not None and r is not None
        results: list[list[Value]] = []
        for d in range(self.directions):
            weights = Weights(
                _direction(w, d),
                _direction(r, d),
                None if b is None else _direction(b, d),
                None if rest[2] is None else _direction(rest[2], d),
            )
            initial = [None if s is None else _direction(s, d) for s in rest[: self.states]]
            results.append(self._unrolled(x, weights, lengths, initial, d))
        return tuple(
            _joined(list(parts), axis).name
            for parts, axis in zip(
                zip(*results, strict=True), (1, *(0,) * self.states), strict=True
            )
        )

    def _unrolled(
        self,
        x: Value,
        weights: Weights,
        lengths: Value | None,
        initial: Sequence[Value | None],
        which: int,
    ) -> list[Value]:
        """y ``[T, 1, N, H]`` and last states ``[1, N, H]`` of one direction."""
        time, batch, _ = x.type.shape
        if not isinstance(time, int):
            raise ModelError(
                f"{type(self).__name__} over {time} steps cannot be written out",
                hint=f"fix the length of the sequence, the dimension {time}",
            )
        hidden = weights.r.type.shape[-1]
        zero = source(x, Full((batch, hidden), 0.0, x.type.dtype))
        states = [zero if s is None else s for s in initial]
        gx = of(MatMul(), x, of(Transpose((1, 0)), weights.w))
        if weights.bias is not None:
            gx = gx + piece(weights.bias, 0, 0, self.gates * hidden)
        steps: list[Value | None] = [None] * time
        for t in reversed(range(time)) if self.backwards(which) else range(time):
            now = of(Reshape((batch, self.gates * hidden)), piece(gx, 0, t, 1))
            new = self.step_values(now, states, weights, self.functions(which))
            steps[t] = new[0]
            if lengths is not None:
                alive = of(Greater(), lengths, lengths.lift(t))
                column = of(Reshape((batch, 1)), alive)
                steps[t] = where(column, new[0], 0.0)
                new = [where(column, n, s) for n, s in zip(new, states, strict=True)]
            states = new
        shape = (1, 1, batch, hidden)
        y = _joined([of(Reshape(shape), s) for s in steps if s is not None], 0)
        return [y, *(of(Reshape((1, batch, hidden)), s) for s in states)]


def _require_shape(what: str, given: TensorType | None, shape: tuple[Index, ...]) -> None:
    if given is None:
        return
    require(given.rank == len(shape), f"the {what} must have {len(shape)} axes, not {given}")
    for ours, theirs in zip(given.shape, shape, strict=True):
        require_equal(ours, theirs, f"the {what} must be {list(map(str, shape))}, not {given}")


def source(like: Value, op: Op) -> Value:
    """The result of an op without operands, in the graph of ``like``."""
    return Value(like.build, like.build.emit(op))


def piece(x: Value, axis: int, start: int, extent: Index) -> Value:
    """``extent`` elements of ``x`` along ``axis`` from ``start`` on."""
    shape = x.type.shape
    if shape[axis] == extent:
        return x
    starts = tuple(start if a == axis else 0 for a in range(len(shape)))
    extents = tuple(extent if a == axis else e for a, e in enumerate(shape))
    return of(Slice(starts, extents, (1,) * len(shape)), x)


def _direction(x: Value, which: int) -> Value:
    return of(Reshape(x.type.shape[1:]), piece(x, 0, which, 1))


def _joined(parts: list[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else of(Concat(axis), *parts)
