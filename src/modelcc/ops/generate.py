"""Ops without data operands, and EyeLike: tensors made from attributes and indices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from modelcc.ir.compute import Element, Operand, StageBuilder, guard, index_value, number
from modelcc.ir.index import Expr, Index, Sym, product
from modelcc.ir.op import Builder, Op, require
from modelcc.ir.tensor import Condition
from modelcc.ir.types import BOOL, F16, F32, I32, I64, Array, DType, TensorType
from modelcc.ops.broadcast import numbers
from modelcc.ops.samples import sample, tensor

Point = tuple[Index, ...]


@dataclass(frozen=True)
class Full(Op):
    """``value`` everywhere."""

    differentiable = False
    shape: tuple[Index, ...]
    value: float | int | bool
    dtype: DType
    symbolic = True
    samples = (
        sample(shape=(2, Sym("n")), value=1.5, dtype=F32),
        sample(shape=(), value=-3, dtype=I64),
        sample(shape=(3,), value=True, dtype=BOOL),
        sample(shape=(0,), value=0.0, dtype=F16),
    )

    def infer(self) -> tuple[TensorType]:
        return (TensorType(self.shape, self.dtype),)

    def reference(self) -> Array:
        return np.full(numbers(self.shape), self.value, self.dtype.numpy)

    def compute(self, at: StageBuilder) -> Operand:
        return at.stage(self.shape, lambda _: number(self.value, self.dtype))


@dataclass(frozen=True)
class Indices(Op):
    """Sizes as data: the index expressions ``values``, row-major, in a tensor of ``shape``."""

    differentiable = False
    values: tuple[Index, ...]
    shape: tuple[int, ...]
    dtype: DType = I64
    symbolic = True
    samples = (
        sample(values=(Sym("n"), 3, Sym("n") * 2 - 1), shape=(3,)),
        sample(values=(Sym("n") // 2,), shape=(), dtype=I32),
        sample(values=(1, 2, 3, Sym("n")), shape=(2, 2), dtype=F32),
        sample(values=(), shape=(0,)),
    )

    def infer(self) -> tuple[TensorType]:
        require(
            product(self.shape) == len(self.values),
            f"{len(self.values)} sizes do not fill a tensor of shape {list(self.shape)}",
        )
        return (TensorType(self.shape, self.dtype),)

    def reference(self) -> Array:
        if any(isinstance(v, Expr) for v in self.values):
            sizes = np.empty(len(self.values), object)
            sizes[:] = self.values
            return sizes.reshape(self.shape)
        return np.array(self.values, self.dtype.numpy).reshape(self.shape)

    def compute(self, at: StageBuilder) -> Operand:
        target = at.tensor(self.shape, self.dtype)
        for place, value in zip(np.ndindex(*self.shape), self.values, strict=True):
            element = index_value(value, self.dtype)
            at.fill(target, (), lambda _, place=place: place, lambda _, e=element: e)
        return target


@dataclass(frozen=True)
class Iota(Op):
    """``result[i] = start + i[axis] * step``."""

    differentiable = False
    shape: tuple[Index, ...]
    axis: int = 0
    start: Index | float = 0
    step: Index | float = 1
    dtype: DType = I64
    symbolic = True
    samples = (
        sample(shape=(4,)),
        sample(shape=(2, Sym("n")), axis=1, start=3, step=-2, dtype=I32),
        sample(shape=(3,), start=Sym("n"), step=2),
        sample(shape=(5,), start=0.5, step=0.25, dtype=F32),
        sample(shape=(0,), dtype=F32),
    )

    def infer(self) -> tuple[TensorType]:
        rank = len(self.shape)
        require(0 <= self.axis < rank, f"Iota along axis {self.axis} of a tensor of rank {rank}")
        return (TensorType(self.shape, self.dtype),)

    def reference(self) -> Array:
        shape = numbers(self.shape)
        line = np.arange(shape[self.axis]) * np.asarray(self.step) + np.asarray(self.start)
        place = [-1 if a == self.axis else 1 for a in range(len(shape))]
        symbolic = isinstance(self.start, Expr) or isinstance(self.step, Expr)
        dtype = np.dtype(object) if symbolic else self.dtype.numpy
        return np.broadcast_to(np.asarray(line, dtype).reshape(place), shape).copy()

    def compute(self, at: StageBuilder) -> Operand:
        def body(o: Point) -> Element:
            start, step, i = self.start, self.step, o[self.axis]
            if not isinstance(start, float) and not isinstance(step, float):
                return index_value(start + i * step, self.dtype)
            scaled = index_value(i, self.dtype) * self._scalar(step)
            return scaled + self._scalar(start)

        return at.stage(self.shape, body)

    def _scalar(self, value: Index | float) -> Element:
        if isinstance(value, float):
            return number(value, self.dtype)
        return index_value(value, self.dtype)


@dataclass(frozen=True)
class EyeLike(Op):
    """1 where ``j - i == k``, else 0, in the shape of the matrix x."""

    differentiable = False
    dtype: DType
    k: int = 0
    samples = (
        sample(tensor(3, 4), dtype=F32),
        sample(tensor(3, "n"), dtype=I64, k=1),
        sample(tensor(2, 2), dtype=BOOL, k=-1),
    )

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(x.rank == 2, f"EyeLike needs a matrix, not {x}")
        return (TensorType(x.shape, self.dtype),)

    def reference(self, x: Array) -> Array:
        return np.eye(*x.shape, k=self.k, dtype=self.dtype.numpy)

    def compute(self, at: StageBuilder, x: Operand) -> Operand:
        one = number(1, self.dtype)
        return at.stage(x.shape, lambda o: guard([Condition(o[1] - o[0], "==", self.k)], one, 0))


def filled(build: Builder, like: str, value: float = 0.0) -> str:
    """A tensor of ``value`` in the shape and dtype of ``like``."""
    type = build.type_of(like)
    return build.emit(Full(type.shape, value, type.dtype))


OPS: tuple[type[Op], ...] = (Full, Indices, Iota, EyeLike)
