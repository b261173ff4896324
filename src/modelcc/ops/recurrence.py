"""What recurrent layers share: the loop over time, and their operands.

Operands are those of ONNX, layout 0: x ``[T, N, I]``, w ``[D, G*H, I]``, r ``[D, G*H, H]``,
b ``[D, 2*G*H]`` (of w, then of r), lengths ``[N]`` (i32), initial h ``[D, N, H]``; LSTM also takes
initial c and peepholes p ``[D, 3*H]``.  D counts directions, G gates.  Results are
y ``[T, D, N, H]`` (zero after the end of a sequence), the last h, and for LSTM the last c.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index
from modelcc.ir.op import Builder, Meeting, Op, require, same_dtype
from modelcc.ir.types import I32, Array, TensorType
from modelcc.ops.accumulate import require_float
from modelcc.ops.activation import (
    Affine,
    Clip,
    Elu,
    HardSigmoid,
    LeakyRelu,
    Relu,
    ScaledTanh,
    Softplus,
    Softsign,
    ThresholdedRelu,
)
from modelcc.ops.arithmetic import Cast, Elementwise, Value, of
from modelcc.ops.broadcast import ReduceSum, Reshape
from modelcc.ops.comparison import Greater, where
from modelcc.ops.generate import Full, Iota
from modelcc.ops.iteration import Iteration, iterated
from modelcc.ops.matmul import MatMul
from modelcc.ops.quant import DynamicQuantizeLinear
from modelcc.ops.quant_matmul import MatMulInteger
from modelcc.ops.shape import Concat, Transpose
from modelcc.ops.transcendental import Sigmoid, Tanh
from modelcc.ops.views import part

COUNTER = "rnn.step"
"""The counter of the loop over time."""

Direction = Literal["forward", "reverse", "bidirectional"]
Activation = Literal[
    "Sigmoid", "Tanh", "Relu", "HardSigmoid", "LeakyRelu", "Elu", "Softsign", "Softplus",
    "ThresholdedRelu", "Affine", "ScaledTanh",
]  # fmt: skip
USUAL: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {
        "HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01,), "Elu": (1.0,), "ThresholdedRelu": (1.0,),
        "Affine": (1.0, 0.0), "ScaledTanh": (1.0, 1.0),
    }
)  # fmt: skip
"""The parameters, alpha and beta, that activations take, with the defaults of ONNX."""


_ACTIVATIONS: Mapping[str, type[Elementwise]] = MappingProxyType(
    {
        op.__name__: op
        for op in (
            *(Sigmoid, Tanh, Relu, HardSigmoid, LeakyRelu, Elu, Softsign, Softplus),
            *(ThresholdedRelu, Affine, ScaledTanh),
        )
    }
)


def activation(name: Activation, given: Sequence[float] = ()) -> Elementwise:
    """The op of an activation; ``given`` are its parameters, the usual ones if empty."""
    return _ACTIVATIONS[name](*(given or USUAL.get(name, ())))


@dataclass(frozen=True)
class Quantised:
    """A matrix of bytes ``[inputs, outputs]``: ``(values - zero) * scale``.

    ``scale`` and ``zero`` (None: 0) are one number, or one for each column.  Where the matrix is
    constant, values are i8 and ``sums`` are those of the columns of ``values - zero``, in i32, so
    that zero points need not enter the products.
    """

    values: Value
    scale: Value
    zero: Value | None
    sums: Value | None = None

    def product(self, x: Value) -> Value:
        """``x`` times the matrix, by integers: x is quantised as it comes, all of it alike."""
        operands = x.build.add(DynamicQuantizeLinear(), x.name)
        bytes, scale, zero = (Value(x.build, name) for name in operands)
        sums = self._sums(bytes, zero)
        return of(Cast(x.type.dtype), sums) * (scale * self.scale)

    def _sums(self, x: Value, x_zero: Value) -> Value:
        """``(x - x_zero) @ (values - zero)`` in i32 (Jacob et al., 2018, section 2.3)."""
        if self.sums is None:
            zeros = [x_zero] if self.zero is None else [x_zero, self.zero]
            return of(MatMulInteger(), x, self.values, *zeros)
        products = of(MatMulInteger(), x, self.values) - of(Cast(I32), x_zero) * self.sums
        if self.zero is None:
            return products
        rows = of(ReduceSum((x.type.rank - 1,), True), of(Cast(I32), x))
        return products - rows * of(Cast(I32), self.zero)


@dataclass(frozen=True)
class Weights:
    """Parameters of one direction, as arrays or values; ``bias`` holds that of w, then of r.

    As values, r is transposed, and ``bias`` what :meth:`Recurrent.split_bias` leaves for a step;
    w, transposed then, and r may be :class:`Quantised`.
    """

    w: Any
    r: Any
    bias: Any | None
    peepholes: Any | None


@dataclass(frozen=True)
class Recurrent(Op):
    """Base of the recurrent layers: checks, and the loop over time.

    ``activations`` holds those of every gate, for each direction one after the other, and
    ``parameters`` the numbers of each, or nothing for the usual ones.  ``clip`` limits what goes
    into them (None: no limit).  ``order`` says where each gate stands in w, r and b (empty: in
    the order of the op's own description).
    """

    direction: Direction = "forward"
    activations: tuple[Activation, ...] = ()
    clip: float | None = None
    parameters: tuple[tuple[float, ...], ...] = ()
    order: tuple[int, ...] = ()
    gates: ClassVar[int] = 1
    states: ClassVar[int] = 1
    defaults: ClassVar[tuple[Activation, ...]] = ("Tanh",)

    @property
    def directions(self) -> int:
        """2 if bidirectional, else 1."""
        return 2 if self.direction == "bidirectional" else 1

    def place(self, gate: int) -> int:
        """Where ``gate`` stands in the weights."""
        return self.order[gate] if self.order else gate

    def functions(self, which: int) -> list[Elementwise]:
        """Activations of direction ``which``."""
        names = self.activations or self.defaults * self.directions
        count = len(self.defaults)
        numbers = self.parameters or ((),) * len(names)
        chosen = list(zip(names, numbers, strict=True))[which * count : (which + 1) * count]
        return [activation(name, given) for name, given in chosen]

    def backwards(self, which: int) -> bool:
        """Whether direction ``which`` reads the sequence from its end."""
        return self.direction == "reverse" or which == 1

    def step(
        self, gx: Array, states: list[Array], weights: Weights, f: list[Elementwise]
    ) -> list[Array]:
        """States after one step whose share of x, biases of w included, is ``gx`` ``[N, G*H]``."""
        raise NotImplementedError(self.mnemonic())

    def step_values(
        self, gx: Value, states: list[Value], weights: Weights, f: list[Elementwise]
    ) -> list[Value]:
        """:meth:`step` as graph ops; ``gx`` has the bias that goes with it, too."""
        raise NotImplementedError(self.mnemonic())

    def recurrent_share(self, h: Value, weights: Weights) -> Value:
        """What the state adds to the gates."""
        r = weights.r
        return r.product(h) if isinstance(r, Quantised) else of(MatMul(), h, r)

    def split_bias(self, bias: Value, hidden: int) -> tuple[Value, Value | None]:
        """What is added to every step's share of x at once, ``[G*H]``, and what is left."""
        width = self.gates * hidden
        return part(bias, 0, 0, width) + part(bias, 0, width, width), None

    def infer(self, *operands: TensorType | None) -> tuple[TensorType, ...]:
        name = type(self).__name__
        x, w, r, b, _, *rest = (*operands, *(None,) * (8 - len(operands)))
        if x is None or w is None or r is None:
            raise ModelError(f"{name} needs x, w and r")
        dtype = same_dtype(*(t for t in (x, w, r, b, *rest) if t is not None))
        require_float(dtype, name)
        require(x.rank == 3, f"{name} needs x [time, batch, inputs], not {x}")
        self.require_meetings(*operands)
        require(
            len(self.activations) in (0, len(self.defaults) * self.directions),
            f"{name} got {len(self.activations)} activations",
            f"give {len(self.defaults)} per direction, or none for the usual ones",
        )
        require(
            not self.order or sorted(self.order) == list(range(self.gates)),
            f"{name} got the order {self.order} of {self.gates} gates",
        )
        hidden = r.shape[-1]
        last = TensorType((self.directions, x.shape[1], hidden), dtype)
        y = TensorType((x.shape[0], self.directions, x.shape[1], hidden), dtype)
        return (y, *(last,) * self.states)

    def meetings(self, *operands: TensorType | None) -> Iterator[Meeting]:
        x, w, r, b, lengths, *rest = (*operands, *(None,) * (8 - len(operands)))
        assert x is not None and r is not None
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
            if given is not None:
                yield from _shape_meets(f"{what} of {type(self).__name__}", given, shape)

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
        w, r = self._in_order(w, hidden), self._in_order(r, hidden)
        b = None if b is None else self._in_order(b, hidden)
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

    def _in_order(self, weights: Array, hidden: int) -> Array:
        """``weights`` of all directions with the gates in the op's own order."""
        sides, _, *rest = weights.shape
        by_gate = weights.reshape(sides, -1, self.gates, hidden, *rest)
        return by_gate[:, :, [self.place(g) for g in range(self.gates)]].reshape(weights.shape)

    def decompose(self, build: Builder, *operands: str) -> tuple[str, ...]:
        """The share of x in all steps is one product; a loop adds that of the states."""
        names = (*operands, *("",) * (8 - len(operands)))
        x, w, r, b, lengths, *rest = (Value(build, n) if n else None for n in names)
        assert x is not None and w is not None and r is not None
        sides = [
            Weights(
                of(Transpose((1, 0)), direction(w, d)),
                of(Transpose((1, 0)), direction(r, d)),
                None if b is None else direction(b, d),
                None if rest[2] is None else direction(rest[2], d),
            )
            for d in range(self.directions)
        ]
        return self.over_directions(x, sides, lengths, rest[: self.states])

    def over_directions(
        self,
        x: Value,
        sides: Sequence[Weights],
        lengths: Value | None,
        initial: Sequence[Value | None],
    ) -> tuple[str, ...]:
        """Results of the layer as graph ops, for the weights of each direction."""
        results: list[list[Value]] = []
        for d, weights in enumerate(sides):
            first = [None if s is None else direction(s, d) for s in initial]
            results.append(self._over_time(x, weights, lengths, first, d))
        return tuple(
            _joined(list(parts), axis).name
            for parts, axis in zip(
                zip(*results, strict=True), (1, *(0,) * self.states), strict=True
            )
        )

    def _over_time(
        self,
        x: Value,
        weights: Weights,
        lengths: Value | None,
        initial: Sequence[Value | None],
        which: int,
    ) -> list[Value]:
        """y ``[T, 1, N, H]`` and last states ``[1, N, H]`` of one direction."""
        time, batch, _ = x.type.shape
        quantised = isinstance(weights.r, Quantised)
        hidden = (weights.r.values if quantised else weights.r).type.shape[0]
        gx = weights.w.product(x) if quantised else of(MatMul(), x, weights.w)
        rest = None
        if weights.bias is not None:
            shared, rest = self.split_bias(weights.bias, hidden)
            gx = gx + shared
        zero = source(x, Full((batch, hidden), 0.0, x.type.dtype))
        states = [zero if s is None else s for s in initial]
        captured = {"gx": gx, **_recurrent(weights.r), "bias": rest,
                    "peepholes": weights.peepholes}  # fmt: skip
        if lengths is not None:
            captured["alive"] = _alive(lengths, time)
        backwards = self.backwards(which)

        def step(at: Iteration, old: list[Value]) -> tuple[list[Value], list[Value]]:
            return self._step(at.backwards(time) if backwards else at, old, which)

        *last, y = iterated(x.build, time, states, captured, step, (0,), COUNTER, (backwards,))
        stacked = of(Reshape((time, 1, batch, hidden)), y)
        return [stacked, *(of(Reshape((1, batch, hidden)), s) for s in last)]

    def _step(self, at: Iteration, old: list[Value], which: int) -> tuple[list[Value], list[Value]]:
        """Next states, and the element of y."""
        r, scale = at["r"], at.get("r_scale")
        own = r if scale is None else Quantised(r, scale, at.get("r_zero"), at.get("r_sums"))
        weights = Weights(None, own, at.get("bias"), at.get("peepholes"))
        gx = at.now("gx")
        new = self.step_values(gx, old, weights, self.functions(which))
        if "alive" not in at:
            return new, [new[0]]
        alive = at.now("alive")
        y = where(alive, new[0], 0.0)
        return [where(alive, n, s) for n, s in zip(new, old, strict=True)], [y]


def _alive(lengths: Value, time: Index) -> Value:
    """Which sequences have not ended at each step, ``[T, N, 1]``."""
    steps = source(lengths, Iota((time, 1, 1), dtype=lengths.type.dtype))
    return of(Greater(), of(Reshape((1, *lengths.type.shape, 1)), lengths), steps)


def _recurrent(r: Value | Quantised) -> dict[str, Value | None]:
    """What the loop takes along of the recurrent weights."""
    if isinstance(r, Value):
        return {"r": r}
    return {"r": r.values, "r_scale": r.scale, "r_zero": r.zero, "r_sums": r.sums}


def _shape_meets(what: str, given: TensorType, shape: tuple[Index, ...]) -> Iterator[Meeting]:
    require(given.rank == len(shape), f"the {what} must have {len(shape)} axes, not {given}")
    for ours, theirs in zip(given.shape, shape, strict=True):
        yield ours, theirs, f"the {what} must be {list(map(str, shape))}, not {given}"


def source(like: Value, op: Op) -> Value:
    """The result of an op without operands, in the graph of ``like``."""
    return Value(like.build, like.build.emit(op))


def direction(x: Value, which: int) -> Value:
    """The part of ``x`` that is direction ``which``."""
    return of(Reshape(x.type.shape[1:]), part(x, 0, which, 1))


def _joined(parts: list[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else of(Concat(axis), *parts)
