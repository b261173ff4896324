"""Arithmetic on small i64 tensors of a model: shapes, positions and counts given at run time.

Constants are folded at import; the rest becomes nodes of the graph.  The results are read as index
symbols, which shapes consist of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.emit import ANYTHING
from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.condition import Constraint
from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.op import Op
from modelcc.ir.operators import Arithmetic
from modelcc.ir.types import I64
from modelcc.ops import elementwise as ew
from modelcc.ops import gather as ga
from modelcc.ops import reduce as rd
from modelcc.ops import shape as sh
from modelcc.ops.cumulative import CumSum
from modelcc.ops.generate import Indices

BEYOND = 2**48
"""More elements than any tensor has."""


@dataclass(frozen=True)
class Vector(Arithmetic):
    """An i64 value of the model under conversion, with NumPy's operators."""

    call: Conversion
    name: str

    @property
    def length(self) -> int:
        """Number of elements of a vector."""
        (extent,) = self.call.type_of(self.name).shape
        if not isinstance(extent, int):
            label = self.call.labels[self.call.inputs.index(self.name)]
            unsupported(f"the number of elements of {label!r} is not known before the model runs")
        self._check_count(extent)
        return extent

    def _check_count(self, count: Index) -> None:
        if isinstance(count, int) and count > MOST_READ:
            self.call.fail(f"{count:,} numbers say shapes or axes where {MOST_READ:,} may")

    def applied(self, function: str, *args: Vector | float) -> Vector:
        names = (_lifted(self.call, a).name for a in args)
        return Vector(self.call, self.call.emit(_OPERATORS[function], *names))

    def __floordiv__(self, other: Vector | int) -> Vector:
        """Quotients of nonnegative numbers."""
        return self.applied("div", self, other)

    def equals(self, other: Vector | int) -> Vector:
        """Elementwise equality, as bools."""
        return self.applied("eq", self, other)

    def clipped(self, low: Vector | int, high: Vector | int | None = None) -> Vector:
        """The maximum with ``low``, then the minimum with ``high``."""
        raised = self.applied("max", self, low)
        return raised if high is None else self.applied("min", raised, high)

    def bounded(self) -> Vector:
        """Values too large for any extent clamped, so that sums do not overflow."""
        return self.clipped(-BEYOND, BEYOND)

    def where(self, then: Vector | int, other: Vector | int) -> Vector:
        """``then`` where this bool holds, else ``other``."""
        a, b = (_lifted(self.call, v) for v in (then, other))
        return Vector(self.call, self.call.emit(ew.Where(), self.name, a.name, b.name))

    def product(self) -> Vector:
        """The product of all elements, a vector of one."""
        return Vector(self.call, self.call.emit(rd.ReduceProd((0,), True), self.name))

    def running_sum(self) -> Vector:
        """Inclusive prefix sums."""
        return Vector(self.call, self.call.emit(CumSum(0, False, False), self.name))

    def at(self, indices: Vector) -> Vector:
        """The elements at ``indices``."""
        return Vector(self.call, self.call.emit(ga.Gather(0), self.name, indices.name))

    def replaced(self, indices: Vector, values: Vector) -> Vector:
        """With ``values`` at ``indices``, which may be negative (from the end)."""
        op = ga.ScatterElements(0, "none")
        return Vector(self.call, self.call.emit(op, self.name, indices.name, values.name))

    def slice(self, start: int, stop: int) -> Vector:
        """The elements from ``start`` to before ``stop``."""
        op = sh.Slice((start,), (stop - start,), (1,))
        return Vector(self.call, self.call.emit(op, self.name))

    def joined(self, other: Vector) -> Vector:
        """Both concatenated."""
        return Vector(self.call, self.call.emit(sh.Concat(0), self.name, other.name))

    def read(
        self,
        label: str,
        known: Range | Sequence[Range] = ANYTHING,
        constraints: Sequence[Constraint] = (),
    ) -> tuple[Index, ...]:
        """The elements as indices; symbols named after ``label`` if unknown."""
        self._check_count(self.call.type_of(self.name).elements)
        return self.call.emitter.read_sizes(
            self.name, label, known, tuple(constraints), self.call.source
        )


_OPERATORS: Mapping[str, Op] = MappingProxyType(
    {
        "add": ew.Add(), "sub": ew.Sub(), "mul": ew.Mul(), "div": ew.Div(), "lt": ew.Less(),
        "gt": ew.Greater(), "eq": ew.Equal(), "max": ew.Max(), "min": ew.Min(),
    }
)  # fmt: skip

MOST_READ = 1 << 16
"""Elements of one operand that may be sizes, each of which gets a symbol."""


def vector_of(call: Conversion, elements: Sequence[Index]) -> Vector:
    """A vector of known elements, possibly symbolic."""
    return Vector(call, call.note(elements, I64))


def named_sizes(call: Conversion, sizes: Sequence[Index], label: str) -> tuple[Index, ...]:
    """``sizes`` as symbols that have these values at run time.

    Offsets in tensors of such extents are short sums, however long the sizes' expressions are.
    """
    if not sizes:
        return ()
    # A message mentions the user's names, not the new ones.
    call.emitter.require([(size, ">=", 0) for size in sizes], call.source)
    (values,) = call.emitter.add_node(Indices(tuple(sizes), (len(sizes),)), source=call.source)
    constraints: list[Constraint] = [(Sym(f"#{n}"), "==", size) for n, size in enumerate(sizes)]
    return call.emitter.read_sizes(values, label, Range(0, None), constraints, call.source)


def operand(call: Conversion, i: int) -> Vector:
    """Operand ``i`` as an i64 vector."""
    name, type = call.input(i), call.type(i)
    if type.dtype != I64:
        name = call.emit(ew.Cast(I64), name)
    if type.rank != 1:
        name = call.emit(sh.Reshape((type.elements,)), name)
    return Vector(call, name)


def axes_at(call: Conversion, i: int, rank: int) -> Vector:
    """Operand ``i``, axes of a tensor of ``rank``, as nonnegative ones; others are an error at run
    time."""
    found = operand(call, i)
    count = call.type(i).elements
    if isinstance(count, int) and count > max(1, rank):
        call.fail(f"operand {i} gives {count:,} axes of a tensor that has {rank}")
    for axis in found.read(call.labels[i] or "axes"):
        if isinstance(axis, int):
            call.normal(axis, rank)
        call.emitter.require([(axis, ">=", -rank), (axis, "<", rank)], call.source)
    return (found < 0).where(found + rank, found)


def positions(count: int, call: Conversion) -> Vector:
    """0, 1, …"""
    return vector_of(call, tuple(range(count)))


def _lifted(call: Conversion, value: Vector | float) -> Vector:
    return value if isinstance(value, Vector) else Vector(call, call.constant(np.array([value])))
