"""Tensor level: structured computations (the algorithm), grouped into kernels by fusion.

A *stage* defines elements of one tensor: for every point of its parallel ``axes`` the element at
``write`` is the combination of ``body`` over the ``reduce`` axes (or ``body`` itself without any).
This is the idea of linalg.generic, TVM's TE and Halide's algorithm.  Reads use logical indices;
layouts and schedules decide where and when, and cannot change what is computed.

Example, ``C = A @ B`` followed by a ReLU, one kernel::

    kernel @matmul_relu(%A: f32[m, 64], %B: f32[64, 32]) -> (%D: f32[m, 32]) {
      %C: f32[m, 32] = [i < m, j < 32] sum[k < 64] %A[i, k] * %B[k, j]
      %D: f32[m, 32] = [i < m, j < 32] max(%C[i, j], 0.0)
    }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from modelcc.ir.condition import Comparison, Condition
from modelcc.ir.constant import Constant
from modelcc.ir.index import Bounds, Index, Range, Sym, symbols
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.library import Callee
from modelcc.ir.region import Branch, Repeat, TensorName
from modelcc.ir.scalar import Combine
from modelcc.ir.types import DType, TensorType

__all__ = [
    "Algorithm", "Apply", "Axis", "Bind", "Cast", "Comparison", "Condition", "Guard", "IndexBound",
    "IndexValue", "Item", "Kernel", "Linear", "Number", "Read", "ReadSize", "Scalar", "Scatter",
    "Select", "Stage", "TensorProgram", "View", "counters", "item_inputs", "item_outputs",
    "item_tensors", "leaf_items", "size_conditions",
]  # fmt: skip


@dataclass(frozen=True)
class Number:
    """A constant scalar of ``dtype``."""

    value: float | int | bool
    dtype: DType


@dataclass(frozen=True)
class IndexValue:
    """An index expression as a number of ``dtype`` (arg-max, position encodings)."""

    index: Index
    dtype: DType


@dataclass(frozen=True)
class Read:
    """Element of ``tensor`` at logical ``indices``; may reach into a zero border (halo)."""

    tensor: str
    indices: tuple[Index, ...]
    dtype: DType


@dataclass(frozen=True)
class Apply:
    """``function`` of :data:`modelcc.ir.scalar.FUNCTIONS` applied to ``args``."""

    function: str
    args: tuple[Scalar, ...]
    dtype: DType


@dataclass(frozen=True)
class Linear:
    """Element ``row`` of the product of constant matrices with the column vector ``args``.

    The first of ``factors`` multiplies ``args``, the next one the result, and so on.  The sum of
    ``matrix[n][i] * column[i]`` is accumulated in the order of ``i``.  Operands of coefficients 0
    are not evaluated: they may be anything.
    """

    factors: tuple[tuple[tuple[float, ...], ...], ...]
    row: Index
    args: tuple[Scalar, ...]
    dtype: DType


@dataclass(frozen=True)
class Select:
    """``then`` if ``condition`` else ``other``; both sides are defined everywhere."""

    condition: Scalar
    then: Scalar
    other: Scalar
    dtype: DType


@dataclass(frozen=True)
class Cast:
    """Value conversion; float to integer truncates towards zero, to bool compares with zero."""

    value: Scalar
    dtype: DType


@dataclass(frozen=True)
class Bitcast:
    """The same bits as another dtype of the same width."""

    value: Scalar
    dtype: DType


@dataclass(frozen=True)
class Guard:
    """``inside`` where all ``conditions`` hold, else ``outside``; reads inside stay in range."""

    conditions: tuple[Condition, ...]
    inside: Scalar
    outside: Scalar
    dtype: DType


@dataclass(frozen=True)
class Bind:
    """Binds ``symbol`` to the integer ``value`` in the index expressions of ``body`` (gather).

    A value outside of ``bound`` ends the run, wherever a guard around it holds, before ``body``
    is evaluated.  Without a bound it is known to be valid.
    """

    symbol: str
    value: Scalar
    body: Scalar
    dtype: DType
    bound: IndexBound | None = None


Scalar: TypeAlias = (
    Number | IndexValue | Read | Apply | Linear | Select | Cast | Bitcast | Guard | Bind
)


@dataclass(frozen=True)
class Axis:
    """An iteration axis: ``name`` runs over ``0 … extent-1``."""

    name: str
    extent: Index


@dataclass(frozen=True)
class Stage:
    """Defines elements of ``output``; several stages may fill disjoint parts of one tensor.

    ``write[d]`` is the output's index in dimension d, as an expression of the parallel axes;
    it is injective.  With ``reduce`` axes the body is combined by ``combine`` starting from the
    combine's identity (an empty sum is 0).
    """

    output: TensorName
    axes: tuple[Axis, ...]
    write: tuple[Index, ...]
    body: Scalar
    reduce: tuple[Axis, ...] = ()
    combine: Combine | None = None


@dataclass(frozen=True)
class Kernel:
    """Stages scheduled together.  ``inputs`` and ``outputs`` live in memory; other tensors that the
    stages define are internal and need not be stored.  ``source`` names the user's nodes.
    ``rounding`` bounds its rounding errors as a multiple of those of the original sums, where
    another algorithm replaced these, and ``asked`` is the key of the contraction, if a schedule
    requested that algorithm."""

    name: str
    inputs: tuple[TensorName, ...]
    outputs: tuple[TensorName, ...]
    stages: tuple[Stage, ...]
    source: tuple[str, ...] = ()
    rounding: float = 1.0
    asked: str = ""


@dataclass(frozen=True)
class Scatter:
    """``stage.output`` is a copy of ``initial`` that is then updated at indices from memory.

    The points of ``stage.axes`` are visited in row-major order.  At each the element at
    ``stage.write``, which may use the symbols of the outermost :class:`Bind` s of the body, becomes
    the body, or with a combine that of itself and the body.  There are no reduction axes, and the
    body does not read the output.  ``inputs`` are ``initial`` and the tensors the body reads.
    """

    stage: Stage
    initial: TensorName
    inputs: tuple[TensorName, ...]
    source: tuple[str, ...] = ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """The one tensor that it defines."""
        return (self.stage.output,)


@dataclass(frozen=True)
class View:
    """``output`` is ``input``'s row-major buffer under another shape; nothing is computed."""

    output: TensorName
    input: TensorName
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class Algorithm:
    """A loop function for an unstructured computation (sorting, non-zero), as it is, or that of a
    library.

    Its parameters are row-major ``inputs``, then ``outputs``, including scratch memory; its size
    parameters have the values ``sizes``.  Shared ones may alias each other.
    """

    function: Callee
    inputs: tuple[TensorName, ...]
    outputs: tuple[TensorName, ...]
    sizes: tuple[Index, ...] = ()
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReadSize:
    """Binds index ``symbols`` to the i64 elements of ``tensor``, in row-major order.

    They may be used in extents and index expressions of later items.  Their bounds, which may use
    earlier symbols, are the program's ``dims``; an element outside of these, or that violates one
    of ``requires``, ends the run.
    """

    symbols: tuple[str, ...]
    tensor: TensorName
    requires: tuple[Condition, ...] = ()
    source: tuple[str, ...] = ()

    @property
    def arguments(self) -> tuple[str, ...]:
        """The tensors that the step uses."""
        return (self.tensor,)

    @property
    def needs(self) -> frozenset[str]:
        """Symbols that its constraints use, other than its own."""
        sides = (side for c in self.requires for side in (c.left, c.right))
        return frozenset(n for side in sides for n in symbols(side)) - frozenset(self.symbols)


def size_conditions(item: ReadSize, dims: Bounds) -> tuple[Condition, ...]:
    """Conditions on sizes that have been read: their bounds, then the item's constraints."""
    found: list[Condition] = []
    for name in item.symbols:
        known = dims[name]
        found += [] if known.lo is None else [Condition(Sym(name), ">=", known.lo)]
        found += [] if known.hi is None else [Condition(Sym(name), "<=", known.hi)]
    return (*found, *item.requires)


LeafItem: TypeAlias = Kernel | Scatter | View | Algorithm | ReadSize
Item: TypeAlias = "LeafItem | Branch[Item] | Repeat[Item]"


def item_inputs(item: Item) -> tuple[str, ...]:
    """Tensors that an item reads; of a branch or loop, those from outside."""
    match item:
        case View():
            return (item.input,)
        case ReadSize():
            return (item.tensor,)
        case Branch():
            return (item.condition, *_read_outside((*item.then, *item.other), ()))
        case Repeat():
            initial = tuple(c.initial for c in item.carries)
            states = tuple(c.state for c in item.carries)
            return tuple(dict.fromkeys((*initial, *_read_outside(item.body, states))))
        case _:
            return item.inputs


def item_outputs(item: Item) -> tuple[str, ...]:
    """Tensors that an item defines for later ones."""
    match item:
        case View():
            return (item.output,)
        case ReadSize():
            return ()
        case _:
            return item.outputs


def item_tensors(item: Item) -> tuple[str, ...]:
    """Every tensor of an item and its inner items, in order of appearance."""
    match item:
        case Kernel():
            made = (stage.output for stage in item.stages)
            found = (*item.inputs, *made, *item.outputs)
        case Branch():
            inner = (n for i in (*item.then, *item.other) for n in item_tensors(i))
            found = (item.condition, *item.outputs, *inner)
        case Repeat():
            own = (n for c in item.carries for n in (c.initial, c.state, c.next, c.last))
            found = (*own, *item.filled, *(n for i in item.body for n in item_tensors(i)))
        case _:
            found = (*item_inputs(item), *item_outputs(item))
    return tuple(dict.fromkeys(found))


def _read_outside(items: tuple[Item, ...], known: tuple[str, ...]) -> tuple[str, ...]:
    made = {*known, *(name for item in items for name in item_outputs(item))}
    return tuple(dict.fromkeys(n for i in items for n in item_inputs(i) if n not in made))


def leaf_items(items: Sequence[Item]) -> Iterator[LeafItem]:
    """Items that contain no others, in the order of the text."""
    for item in items:
        match item:
            case Branch():
                yield from leaf_items((*item.then, *item.other))
            case Repeat():
                yield from leaf_items(item.body)
            case _:
                yield item


def view_bases(items: Sequence[Item]) -> dict[str, str]:
    """Views and their bases, which are not views themselves."""
    found: dict[str, str] = {}
    for item in leaf_items(items):
        if isinstance(item, View):
            found[item.output] = found.get(item.input, item.input)
    return found


def counters(items: Sequence[Item]) -> Iterator[str]:
    """Counters of the loops among items and inside them."""
    for item in items:
        match item:
            case Branch():
                yield from counters((*item.then, *item.other))
            case Repeat():
                yield item.counter
                yield from counters(item.body)
            case _:
                pass


@dataclass(frozen=True)
class TensorProgram:
    """A model at the tensor level: items in execution order; every tensor has a type.

    ``states`` are outputs, each with the input whose memory it is to take: what a model keeps
    between calls.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    items: tuple[Item, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Constant] = field(default_factory=dict[str, Constant])
    dims: Bounds = field(default_factory=dict[str, Range])
    states: Mapping[str, str] = field(default_factory=dict[str, str])

    def tensors(self) -> tuple[str, ...]:
        """Every tensor that the program takes, defines or returns, in order of appearance."""
        found = dict.fromkeys((*self.inputs, *self.constants))
        for item in self.items:
            found |= dict.fromkeys(item_tensors(item))
        return tuple(found | dict.fromkeys(self.outputs))

    def with_items(self, items: tuple[Item, ...]) -> TensorProgram:
        """The program with other items; types of dropped tensors are dropped too."""
        program = replace(self, items=items)
        types = {name: self.types[name] for name in program.tensors() if name in self.types}
        return replace(program, types=types)
