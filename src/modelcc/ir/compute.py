"""Tensor-level definition of an op: a function of indexable operands and a builder of stages.

def compute(self, at, x, w):                     # y[i, j] = sum_k x[i, k] * w[k, j]
    (m, k), (_, n) = x.shape, w.shape
    return at.reduce((m, n), (k,), "sum", lambda o, r: x[o[0], r[0]] * w[r[0], o[1]])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from modelcc.ir.index import Index, Sym
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.operators import Arithmetic, Plain
from modelcc.ir.scalar import FUNCTIONS, Combine
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Bind,
    Bitcast,
    Cast,
    Condition,
    Guard,
    IndexValue,
    Linear,
    Number,
    Read,
    Scalar,
    Scatter,
    Select,
    Stage,
)
from modelcc.ir.types import BOOL, DType, TensorType

Matrix: TypeAlias = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, eq=False)
class Element(Arithmetic):
    """A scalar expression under construction; arithmetic with Python numbers casts them."""

    scalar: Scalar

    @property
    def dtype(self) -> DType:
        return self.scalar.dtype

    def applied(self, function: str, *args: Element | Plain) -> Element:
        return apply(function, *args)

    def cast(self, dtype: DType) -> Element:
        """Value conversion; the identity when the dtype is already right."""
        return self if self.dtype == dtype else Element(Cast(self.scalar, dtype))

    def bitcast(self, dtype: DType) -> Element:
        """The same bits as another dtype of the same width."""
        return self if self.dtype == dtype else Element(Bitcast(self.scalar, dtype))


def number(value: Plain, dtype: DType) -> Element:
    """A constant of ``dtype``."""
    if dtype.is_float:
        return Element(Number(float(value), dtype))
    return Element(Number(bool(value) if dtype == BOOL else int(value), dtype))


def apply(function: str, *args: Element | Plain) -> Element:
    """Apply a scalar function; Python numbers take the dtype of the first element operand."""
    dtype = next(a.dtype for a in args if isinstance(a, Element))
    scalars = tuple((a if isinstance(a, Element) else number(a, dtype)).scalar for a in args)
    result = FUNCTIONS[function].result_of(dtype)
    return Element(Apply(function, scalars, result))


def select(condition: Element, then: Element | Plain, other: Element | Plain) -> Element:
    """``then`` where ``condition`` else ``other``."""
    dtype = next(a.dtype for a in (then, other) if isinstance(a, Element))
    t, o = (a if isinstance(a, Element) else number(a, dtype) for a in (then, other))
    return Element(Select(condition.scalar, t.scalar, o.scalar, dtype))


def guard(conditions: Sequence[Condition], inside: Element, outside: Element | Plain) -> Element:
    """``inside`` where all index conditions hold (its reads may be out of range elsewhere)."""
    if not conditions:
        return inside
    other = outside if isinstance(outside, Element) else number(outside, inside.dtype)
    return Element(Guard(tuple(conditions), inside.scalar, other.scalar, inside.dtype))


def index_value(index: Index, dtype: DType) -> Element:
    """An index expression as a number."""
    return Element(IndexValue(index, dtype))


def linear(factors: Sequence[Matrix], row: Index, args: Sequence[Element]) -> Element:
    """Element ``row`` of ``factors``, one after the other, times the column vector ``args``."""
    scalars = tuple(a.scalar for a in args)
    matrices = tuple(tuple(tuple(map(float, r)) for r in matrix) for matrix in factors)
    return Element(Linear(matrices, row, scalars, args[0].dtype))


@dataclass(frozen=True, eq=False)
class Operand:
    """A tensor that a stage can read."""

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[Index, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return self.type.rank

    def __getitem__(self, indices: Index | tuple[Index, ...]) -> Element:
        where = indices if isinstance(indices, tuple) else (indices,)
        if len(where) != self.rank:
            raise ValueError(f"{self.name}: {len(where)} indices for a tensor of rank {self.rank}")
        return Element(Read(self.name, where, self.dtype))

    def broadcast(self, indices: Sequence[Index]) -> Element:
        """The element under NumPy broadcasting to ``len(indices)`` dimensions."""
        tail = indices[len(indices) - self.rank :]
        return self[tuple(0 if d == 1 else i for i, d in zip(tail, self.shape, strict=True))]


Inputs: TypeAlias = Sequence[Operand | None]
Outputs: TypeAlias = Sequence[Operand]
"""Operands, None where absent, and results."""


class StageBuilder:
    """Collects stages of one op; every axis and tensor it makes has a fresh name.

    ``prefix`` keeps names unique within a kernel program (usually the node's first result).
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.stages: list[Stage | Scatter] = []
        self.types: dict[str, TensorType] = {}
        self._axes = 0

    def axes(self, extents: Sequence[Index], letter: str = "i") -> tuple[Axis, ...]:
        """Fresh axes with these extents."""
        first = self._axes
        self._axes += len(extents)
        return tuple(Axis(f"{letter}{first + n}", e) for n, e in enumerate(extents))

    def tensor(self, shape: Sequence[Index], dtype: DType) -> Operand:
        """A fresh tensor, to be filled by :meth:`fill` (several disjoint parts allowed)."""
        name = f"{self.prefix}.{len(self.types)}"
        self.types[name] = TensorType(tuple(shape), dtype)
        return Operand(name, self.types[name])

    def stage(
        self, shape: Sequence[Index], body: Callable[[tuple[Index, ...]], Element]
    ) -> Operand:
        """``result[o] = body(o)`` for every index ``o`` of ``shape``."""
        axes = self.axes(shape)
        point = tuple(Sym(a.name) for a in axes)
        element = body(point)
        result = self.tensor(shape, element.dtype)
        self.stages.append(Stage(result.name, axes, point, element.scalar))
        return result

    def reduce(
        self,
        shape: Sequence[Index],
        extents: Sequence[Index],
        combine: Combine,
        body: Callable[[tuple[Index, ...], tuple[Index, ...]], Element],
    ) -> Operand:
        """``result[o] = combine over r in extents of body(o, r)``."""
        axes, reduce = self.axes(shape), self.axes(extents, "r")
        point = tuple(Sym(a.name) for a in axes)
        element = body(point, tuple(Sym(a.name) for a in reduce))
        result = self.tensor(shape, element.dtype)
        self.stages.append(Stage(result.name, axes, point, element.scalar, reduce, combine))
        return result

    def fill(
        self,
        target: Operand,
        extents: Sequence[Index],
        write: Callable[[tuple[Index, ...]], Sequence[Index]],
        body: Callable[[tuple[Index, ...]], Element],
        reduce: Sequence[Index] = (),
        combine: Combine | None = None,
    ) -> None:
        """``target[write(o)] = body(o + r)`` for every ``o`` in ``extents``, combined over r."""
        axes, reduction = self.axes(extents), self.axes(reduce, "r")
        point = tuple(Sym(a.name) for a in axes)
        element = body(point + tuple(Sym(a.name) for a in reduction))
        stage = Stage(target.name, axes, tuple(write(point)), element.scalar, reduction, combine)
        self.stages.append(stage)

    def scatter(
        self,
        initial: Operand,
        extents: Sequence[Index],
        places: Callable[[tuple[Index, ...]], Sequence[tuple[Element, IndexBound | None]]],
        write: Callable[[tuple[Index, ...], tuple[Index, ...]], Sequence[Index]],
        body: Callable[[tuple[Index, ...]], Element],
        combine: Combine | None = None,
    ) -> Operand:
        """A copy of ``initial`` in which ``result[write(o, p)] = body(o)`` for every ``o`` in
        ``extents``, in row-major order, or ``combine`` of the old element and ``body(o)``.

        ``p`` are the run-time integers ``places(o)``; the run ends where one is out of its bound.
        """
        axes = self.axes(extents)
        point = tuple(Sym(a.name) for a in axes)
        given = list(places(point))
        names = [a.name for a in self.axes((1,) * len(given), "g")]
        scalar = body(point).scalar
        for name, (value, bound) in zip(reversed(names), reversed(given), strict=True):
            scalar = Bind(name, value.scalar, scalar, scalar.dtype, bound)
        result = self.tensor(initial.shape, initial.dtype)
        found = tuple(write(point, tuple(map(Sym, names))))
        stage = Stage(result.name, axes, found, scalar, (), combine)
        inputs = dict.fromkeys((initial.name, *(r.tensor for r in reads(scalar))))
        self.stages.append(Scatter(stage, initial.name, tuple(inputs)))
        return result

    def gather(
        self, value: Element, body: Callable[[Index], Element], bound: IndexBound | None
    ) -> Element:
        """``body(i)`` where ``i`` is the run-time integer ``value``.

        A value outside of ``bound`` ends the run; None if it is in range by construction, whatever
        the data.
        """
        symbol = self.axes((1,), "g")[0].name
        inner = body(Sym(symbol))
        return Element(Bind(symbol, value.scalar, inner.scalar, inner.dtype, bound))
