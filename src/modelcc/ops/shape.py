"""Ops that move or make elements without computing: Transpose, Concat, Slice, Full …

All attributes are given for the full rank, starts and axes non-negative.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, guard
from modelcc.ir.condition import Constraints
from modelcc.ir.index import Index, Sym, mod, total
from modelcc.ir.narrowing import FOLLOWS
from modelcc.ir.op import Builder, Gradients, Op, Values, equal, require, same_dtype
from modelcc.ir.quantized_form import MOVES, QuantizedForm
from modelcc.ir.tensor import Condition
from modelcc.ir.types import BOOL, F16, I64, Array, TensorType
from modelcc.ops import broadcast, generate, slicing
from modelcc.ops.broadcast import Expand as Expand
from modelcc.ops.broadcast import ReduceSum, numbers, shape_text
from modelcc.ops.broadcast import Reshape as Reshape
from modelcc.ops.generate import EyeLike as EyeLike
from modelcc.ops.generate import Full as Full
from modelcc.ops.generate import Indices as Indices
from modelcc.ops.generate import Iota as Iota
from modelcc.ops.samples import sample, tensor
from modelcc.ops.slicing import ReplaceSlice as ReplaceSlice
from modelcc.ops.slicing import Slice as Slice
from modelcc.ops.slicing import Unslice as Unslice

Point = tuple[Index, ...]


@dataclass(frozen=True)
class Transpose(Op):
    """``result[i][k] = x[j]`` with axis ``k`` of the result being axis ``perm[k]`` of x."""

    narrowing = FOLLOWS
    perm: tuple[int, ...]
    symbolic = True
    samples = (
        sample(tensor(3, 4), perm=(1, 0)),
        sample(tensor(2, "n", 3), perm=(2, 0, 1)),
        sample(tensor(2, 1, 3, 4, dtype=F16), perm=(0, 3, 1, 2)),
        sample(tensor(), perm=()),
        sample(tensor(0, 2, dtype=BOOL), perm=(1, 0)),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(
            sorted(self.perm) == list(range(x.rank)),
            f"{self.perm} does not permute the {x.rank} axes of {x}",
        )
        return (TensorType(tuple(x.shape[a] for a in self.perm), x.dtype),)

    def reference(self, x: Array) -> Array:
        return np.transpose(x, self.perm)  # a view: folded weights are not in memory twice

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        shape = [x.shape[a] for a in self.perm]
        return at.stage(shape, lambda o: x[tuple(o[k] for k in self.inverse())])

    def inverse(self) -> tuple[int, ...]:
        """The permutation that undoes this one."""
        return tuple(self.perm.index(a) for a in range(len(self.perm)))

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        return (build.emit(Transpose(self.inverse()), dys[0]),)

    def quantize(self) -> QuantizedForm:
        return MOVES


@dataclass(frozen=True)
class Concat(Op):
    """The operands one after another along ``axis``."""

    narrowing = FOLLOWS
    axis: int
    symbolic = True
    samples = (
        sample(tensor(2, 3), tensor(2, 1), axis=1),
        sample(tensor("n", 3), tensor(2, 3), tensor("n", 3), axis=0),
        sample(tensor(3, dtype=I64), axis=0),
        sample(tensor(0, 2), tensor(3, 2), axis=0),
        sample(tensor(2, "n", 2, dtype=F16), tensor(2, "m", 2, dtype=F16), axis=1),
    )

    def infer(self, *xs: TensorType) -> tuple[TensorType]:
        require(bool(xs), "Concat needs at least one operand")
        dtype, first = same_dtype(*xs), xs[0]
        require(
            0 <= self.axis < first.rank,
            f"Concat along axis {self.axis} of {first}, which has rank {first.rank}",
        )
        for x in xs:
            require(
                _fit(x.shape, first.shape, self.axis),
                f"Concat of {first} and {x}: extents differ outside axis {self.axis}",
            )
        shape = list(first.shape)
        shape[self.axis] = total([x.shape[self.axis] for x in xs])
        return (TensorType(tuple(shape), dtype),)

    def shape_constraints(self, *xs: TensorType | None) -> Constraints:
        first, *others = (x.shape for x in xs if x is not None)
        rest = [axis for axis in range(len(first)) if axis != self.axis]
        return tuple(
            constraint
            for other in others
            for constraint in equal([first[axis] for axis in rest], [other[axis] for axis in rest])
        )

    def reference(self, *xs: Array) -> Array:
        return np.concatenate(xs, self.axis)

    def compute(self, at: StageBuilder, *xs: Operand) -> Operand:
        (result,) = self.infer(*(x.type for x in xs))
        target = at.tensor(result.shape, result.dtype)
        offset: Index = 0
        for x in xs:
            at.fill(target, x.shape, self.placed(offset), lambda o, x=x: x[o])
            offset = offset + x.shape[self.axis]
        return target

    def placed(self, offset: Index) -> Callable[[Point], Point]:
        """Where an operand's element goes, given the extents before it."""
        return lambda o: (*o[: self.axis], o[self.axis] + offset, *o[self.axis + 1 :])

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        grads: list[str] = []
        offset: Index = 0
        for x in inputs:
            shape = build.type_of(x).shape
            starts = tuple(offset if a == self.axis else 0 for a in range(len(shape)))
            grads.append(build.emit(Slice(starts, shape, (1,) * len(shape)), dys[0]))
            offset = offset + shape[self.axis]
        return tuple(grads)

    def quantize(self) -> QuantizedForm:
        return QuantizedForm(None, moves=True)


def _fit(shape: tuple[Index, ...], first: tuple[Index, ...], axis: int) -> bool:
    return len(shape) == len(first) and all(
        a == axis or d == e or not (isinstance(d, int) and isinstance(e, int))
        for a, (d, e) in enumerate(zip(shape, first, strict=True))
    )


@dataclass(frozen=True)
class Tile(Op):
    """x repeated ``repeats`` times along each axis."""

    narrowing = FOLLOWS
    repeats: tuple[Index, ...]
    symbolic = True
    samples = (
        sample(tensor(3), repeats=(2,)),
        sample(tensor(2, "n"), repeats=(1, 3)),
        sample(tensor(2, 1), repeats=(2, Sym("n"))),
        sample(tensor(2, dtype=I64), repeats=(0,)),
        sample(tensor(), repeats=()),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(
            len(self.repeats) == x.rank,
            f"Tile needs one count per axis of {x}, not {shape_text(self.repeats)}",
        )
        shape = tuple(e * r for e, r in zip(x.shape, self.repeats, strict=True))
        return (TensorType(shape, x.dtype),)

    def reference(self, x: Array) -> Array:
        return np.tile(x, numbers(self.repeats))

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        def place(i: Index, extent: Index, repeat: Index) -> Index:
            return i if repeat == 1 else 0 if extent in (0, 1) else mod(i, extent)

        return at.stage(
            self.infer(x.type)[0].shape, lambda o: x[tuple(map(place, o, x.shape, self.repeats))]
        )

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        (x,) = inputs
        shape = build.type_of(x).shape
        pairs = tuple(d for pair in zip(self.repeats, shape, strict=True) for d in pair)
        split = build.emit(Reshape(pairs), dys[0])
        axes = tuple(range(0, len(pairs), 2))
        return (build.emit(ReduceSum(axes, keepdims=False), split),)

    def quantize(self) -> QuantizedForm:
        return MOVES


@dataclass(frozen=True)
class Trilu(Op):
    """The triangle of each matrix ``x[…, i, j]``: ``j - i >= k`` if ``upper``, else ``<= k``."""

    upper: bool = True
    k: Index = 0
    samples = (
        sample(tensor(3, 4)),
        sample(tensor(2, 3, "n"), upper=False),
        sample(tensor(4, 3), upper=True, k=-1),
        sample(tensor(3, 3, dtype=I64), upper=False, k=1),
        sample(tensor(3, 3, dtype=BOOL), k=5),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(x.rank >= 2, f"Trilu needs at least two axes, not {x}")
        return (TensorType(x.shape, x.dtype),)

    def reference(self, x: Array) -> Array:
        (k,) = numbers((self.k,))
        return np.triu(x, k) if self.upper else np.tril(x, k)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        comparison = ">=" if self.upper else "<="

        def body(o: Point) -> Element:
            return guard([Condition(o[-1] - o[-2], comparison, self.k)], x[o], 0)

        return at.stage(x.shape, body)

    def grad(self, build: Builder, dys: Values, inputs: Values, outputs: Values) -> Gradients:
        return (build.emit(self, dys[0]),)


OPS: tuple[type[Op], ...] = (
    *broadcast.OPS,
    *generate.OPS,
    *slicing.OPS,
    *(Transpose, Concat, Tile, Trilu),
)
