"""Inlining of elementwise producers into the stages that read them.

Data movement (a read at other indices) is inlined wherever it is read, also into reductions;
arithmetic only where it is read once, by an elementwise stage, and dear arithmetic only where that
does not repeat it for every point of an axis that the producer lacks (gates of channels, places
along an axis that are quotients by a size).

Expressions stay below a size and a depth, however long a chain of producers is: what would exceed
them is a stage of its own, whose value fusion keeps in registers.  So the work, and the code, is
linear in the number of stages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from modelcc.ir.index import (
    Bounds,
    Index,
    Sym,
    divisions,
    loop_range,
    simplify,
    split_affine,
    substitute,
    symbols,
)
from modelcc.ir.scalar_tree import (
    cost,
    depth,
    map_own_indices,
    reads,
    size,
    substitute_indices,
    transform,
    walk,
)
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Bind,
    Cast,
    Guard,
    IndexValue,
    Item,
    Kernel,
    Number,
    Read,
    Scalar,
    Scatter,
    Stage,
    TensorProgram,
)
from modelcc.ir.types import TensorType
from modelcc.passes.tensor.inline_usage import InlineUsage, repeats, same_points

WORTH_STORING = 8
"""Cost of a value that is rather read from memory than computed anew for every reader's point."""

WORTH_MOVING = 2
"""Reads of an element at places from memory for which it is moved to where these are rows."""

CHOOSING = frozenset({"neg", "abs", "max", "min", "maximum", "minimum"})
"""Functions whose result is an operand, but for its sign."""

USUAL = 64
"""A length that is not known."""

SIZE, DEPTH = 256, 32
"""Nodes of the largest expression that is made, and of the longest path in it: some times what
single layers of models come to, and little enough for whatever walks an expression."""


@dataclass(frozen=True)
class InlineStages:
    """Inline single-stage producers; ``movement_readers`` bounds the copies of a moved read.

    What rounds floats to fewer bits is stored, and what makes them wider is inlined into whatever
    reads it; integers, too, where memory is dear, with ``narrow``.  With ``roundings`` floats are
    rounded where they are read, if that is once and by what would be another kernel.  Without
    ``choices`` products read no operand of which the point tells where it is read.

    before::

        program @main(%x: f32[n, 4]) -> (%c) dims(n in 1:) {
          kernel @Add(%x: f32[n, 4]) -> (%b: f32[n, 4]) {
            %b: f32[n, 4] = [i < n, j < 4] %x[i, j] + 1.0
          }
          kernel @Transpose(%b: f32[n, 4]) -> (%t: f32[4, n]) {
            %t: f32[4, n] = [i < 4, j < n] %b[j, i]
          }
          kernel @Relu(%t: f32[4, n]) -> (%c: f32[4, n]) {
            %c: f32[4, n] = [i < 4, j < n] max(%t[i, j], 0.0)
          }
        }

    after::

        program @main(%x: f32[n, 4]) -> (%c) dims(n in 1:) {
          kernel @Relu(%x: f32[n, 4]) -> (%c: f32[4, n]) {
            %c: f32[4, n] = [i < 4, j < n] max(%x[j, i] + 1.0, 0.0)
          }
        }
    """

    movement_readers: int = 8
    narrow: bool = False
    choices: bool = True
    roundings: bool = False

    def __call__(self, program: TensorProgram) -> TensorProgram:
        usage = InlineUsage.of(program)
        growth = _Growth()
        inlined = _Inlined(program.dims)
        items: list[Item] = []
        for item in program.items:
            if isinstance(item, Scatter):
                items.append(inlined.into_scatter(item))
                continue
            if not isinstance(item, Kernel):
                items.append(item)
                continue
            stage = item.stages[0]
            readers = usage.readers.get(stage.output, [])
            wanted = self._inlines(item, usage, growth, inlined, program)
            if wanted and growth.allows(stage, readers):
                inlined.kernels[stage.output] = item
                if stage.output not in usage.pinned:
                    continue
            items.append(inlined.into(item))
        return program.with_items(tuple(items))

    def _inlines(
        self,
        kernel: Kernel,
        usage: InlineUsage,
        growth: _Growth,
        inlined: _Inlined,
        program: TensorProgram,
    ) -> bool:
        stage = kernel.stages[0]
        simple = stage.write == tuple(Sym(a.name) for a in stage.axes) and not stage.reduce
        readers = usage.readers.get(stage.output, [])
        if not simple or not readers or usage.writers[stage.output] != 1:
            return False
        if _has_border(program.types[stage.output]):
            return False
        if any(isinstance(s, Bind) for s in walk(stage.body)):
            return False
        if isinstance(stage.body, Cast) and (self.narrow or _of_floats(stage.body)):
            width = stage.body.value.dtype.bits
            if stage.body.dtype.bits < width:
                made = inlined.into(kernel).stages[0]
                if not (isinstance(made.body, Cast) and _is_exact(made.body)):
                    return self.roundings and usage.goes_to_another_kernel(made)
            if stage.body.dtype.bits > width and isinstance(stage.body.value, Read):
                return True
        work = growth.of(stage).cost + _quotients(stage) + _roundings(stage)
        if work == 0:
            if len(readers) > self.movement_readers or _lies_apart(stage, readers):
                return False
            if stage.output in usage.pinned and _goes_on(stage, readers):
                return False
            if not any(reader.reduce for reader in readers):
                return True
            moved = inlined.into(kernel).stages[0]
            if not self.choices and _chooses(moved.body):
                return False
            return all(_accepts_movement(reader, moved, program) for reader in readers)
        if len(readers) != 1 or readers[0].reduce or stage.output in usage.pinned:
            return False
        return work < WORTH_STORING or not repeats(readers[0], stage.output)


@dataclass(frozen=True)
class _Measures:
    """Size, cost and depth of an expression with all that is inlined into it; ``own`` is the
    depth of the expression itself."""

    size: int
    cost: int
    depth: int
    own: int

    @staticmethod
    def of(body: Scalar) -> _Measures:
        deep = depth(body)
        return _Measures(size(body), cost(body), deep, deep)

    def with_read(self, producer: _Measures) -> _Measures:
        """The measures after one read, a leaf, has become ``producer``."""
        deep = max(self.depth, self.own + producer.depth)
        return _Measures(self.size + producer.size, self.cost + producer.cost, deep, self.own)


@dataclass(frozen=True)
class _Growth:
    """What the expressions of stages, by identity, have grown to."""

    measures: dict[int, _Measures] = field(default_factory=dict[int, _Measures])

    def of(self, stage: Stage) -> _Measures:
        measures = self.measures.get(id(stage))
        if measures is None:
            measures = self.measures[id(stage)] = _Measures.of(stage.body)
        return measures

    def allows(self, stage: Stage, readers: Sequence[Stage]) -> bool:
        """Whether all that read ``stage``, named once for each read, stay small with it; if so,
        it counts as inlined."""
        own = self.of(stage)
        grown: dict[int, _Measures] = {}
        for reader in readers:
            measures = (grown.get(id(reader)) or self.of(reader)).with_read(own)
            if measures.size > SIZE or measures.depth > DEPTH:
                return False
            grown[id(reader)] = measures
        self.measures.update(grown)
        return True


class _Rewriting:
    """What becomes of the indices of an inlined expression: ``values`` for the axes, simplified
    in the reader's ``ranges``, and what becomes of these in what the reader is inlined into."""

    def __init__(
        self, values: Mapping[str, Index], ranges: Bounds, after: _Rewriting | None
    ) -> None:
        self._values = values
        self._ranges = ranges
        self._after = after
        self._known: dict[Index, Index] = {}

    def index(self, index: Index) -> Index:
        """What ``index`` of the inlined expression is in the one that is kept."""
        result = self._known.get(index)
        if result is None:
            result = simplify(substitute(index, self._values), self._ranges)
            result = self._known[index] = self._after.index(result) if self._after else result
        return result


class _Inlined:
    """Kernels that are inlined, by what they compute."""

    def __init__(self, dims: Bounds) -> None:
        self.kernels: dict[str, Kernel] = {}
        self._dims = dims

    def into(self, kernel: Kernel) -> Kernel:
        """``kernel`` with all that is inlined into it, from the first producer on."""
        stage = kernel.stages[0]
        if not self._reads_inlined(stage):
            return kernel
        body = self._body(stage, None)
        inputs = tuple(dict.fromkeys(r.tensor for r in reads(body)))
        source = tuple(self._source(stage, kernel.source))
        return replace(kernel, inputs=inputs, stages=(replace(stage, body=body),), source=source)

    def into_scatter(self, item: Scatter) -> Scatter:
        """``item`` with all that is inlined into its updates and their places."""
        if not self._reads_inlined(item.stage):
            return item
        stage = replace(item.stage, body=self._body(item.stage, None))
        inputs = dict.fromkeys((item.initial, *(r.tensor for r in reads(stage.body))))
        source = self._source(item.stage, item.source)
        return Scatter(stage, item.initial, tuple(inputs), tuple(source))

    def _reads_inlined(self, stage: Stage) -> bool:
        return any(r.tensor in self.kernels for r in reads(stage.body))

    def _body(self, stage: Stage, after: _Rewriting | None) -> Scalar:
        ranges = {**self._dims, **{a.name: loop_range(a.extent) for a in _axes(stage)}}
        own = _Rewriting({}, ranges, after) if self._reads_inlined(stage) else after

        def visit(node: Scalar) -> Scalar:
            producer = self.kernels.get(node.tensor) if isinstance(node, Read) else None
            if producer is None or not isinstance(node, Read):
                return node if own is None else map_own_indices(node, own.index)
            moved = producer.stages[0]
            values = {a.name: i for a, i in zip(moved.axes, node.indices, strict=True)}
            return self._body(moved, _Rewriting(values, ranges, after))

        return transform(stage.body, visit)

    def _source(self, stage: Stage, own: Sequence[str]) -> dict[str, None]:
        """Sources of what is inlined into ``stage``, in the order of reads, then its ``own``."""
        source: dict[str, None] = {}
        for read in reads(stage.body):
            if read.tensor in self.kernels:
                kernel = self.kernels[read.tensor]
                source |= self._source(kernel.stages[0], kernel.source)
        return source | dict.fromkeys(own)


def _roundings(stage: Stage) -> int:
    """Conversions to floats of fewer bits."""
    casts = (c for c in walk(stage.body) if isinstance(c, Cast) and _of_floats(c))
    return sum(c.dtype.bits < c.value.dtype.bits and not _is_exact(c) for c in casts)


def _is_exact(cast: Cast) -> bool:
    """Whether a conversion to fewer bits rounds nothing: of numbers of the narrow type that are
    chosen among, or have another sign (half of a rotary embedding)."""

    def fits(value: Scalar) -> bool:
        match value:
            case Cast():
                return value.value.dtype == cast.dtype
            case Apply(function, arguments):
                return function in CHOOSING and all(map(fits, arguments))
            case Number(number):
                return number == 0
            case _:
                return False

    return _of_floats(cast) and fits(cast.value)


def _of_floats(cast: Cast) -> bool:
    return cast.dtype.is_float and cast.value.dtype.is_float


def _lies_apart(moved: Stage, readers: Sequence[Stage]) -> bool:
    """Whether rows that ``readers``, named once for each read, find at places from memory are rows
    only after the movement, and are read more often than they are moved."""
    inner = moved.axes[-1].name if moved.axes else ""
    if any(inner in symbols(r.indices[-1]) for r in reads(moved.body) if r.indices):
        return False
    reductions = [r for r in readers if not r.reduce and _finds_rows(r, moved.output)]
    points = sum(_usual(reader) for reader in reductions)
    return points >= WORTH_MOVING * _usual(moved)


def _goes_on(moved: Stage, readers: Sequence[Stage]) -> bool:
    """Whether what has to be stored is read once, by what has as many points: then both are a
    kernel, in which it is in registers (a cache that grows, and is converted)."""
    return len(readers) == 1 and not readers[0].reduce and same_points(moved, readers[0])


def _finds_rows(reader: Stage, tensor: str) -> bool:
    """Whether ``reader`` walks along the last dimension of ``tensor``, at places from memory."""
    bound = {node.symbol for node in walk(reader.body) if isinstance(node, Bind)}
    rows = [r for r in reads(reader.body) if r.tensor == tensor]
    along = Sym(reader.axes[-1].name) if reader.axes else None
    return any(r.indices[-1:] == (along,) and bound & _named(r.indices[:-1]) for r in rows)


def _named(indices: Sequence[Index]) -> frozenset[str]:
    return frozenset(name for index in indices for name in symbols(index))


def _usual(stage: Stage) -> int:
    """Points of a stage; lengths that are not known count as ``USUAL``."""
    return prod(a.extent if isinstance(a.extent, int) else USUAL for a in stage.axes)


def _quotients(stage: Stage) -> int:
    """Cost of numbers that ``stage`` finds by dividing its axes: no vector does that, but by powers
    of two."""
    axes = frozenset(a.name for a in stage.axes)
    indices = {s.index for s in walk(stage.body) if isinstance(s, IndexValue)}
    quotients = {
        d.text
        for index in indices
        for d in divisions(index)
        if not _is_power_of_two(d.divisor) and not axes.isdisjoint(d.atom_symbols())
    }
    return WORTH_STORING * len(quotients)


def _is_power_of_two(divisor: Index) -> bool:
    return isinstance(divisor, int) and divisor & (divisor - 1) == 0


def _has_border(type_: TensorType) -> bool:
    """Whether readers count on a zero border, which only a stored tensor has."""
    return type_.layout is not None and any(b or a for b, a in type_.layout.halo)


def _chooses(body: Scalar) -> bool:
    """Whether the point tells which of several elements is read."""
    return any(isinstance(node, Guard) and any(reads(node.outside)) for node in walk(body))


def _accepts_movement(reader: Stage, moved: Stage, program: TensorProgram) -> bool:
    """Whether ``reader`` may read through the movement ``moved``.

    Reductions accept it only as operands of a product and where positions stay affine; walking a
    row through a permutation several times would cost more than moving it once.
    """
    if not reader.reduce:
        return True
    if not _is_product(reader):
        return False
    ranges = {**program.dims, **{a.name: loop_range(a.extent) for a in _axes(reader)}}
    names = [a.name for a in _axes(reader)]
    for read in reads(reader.body):
        if read.tensor != moved.output:
            continue
        for inner in reads(_moved_body(moved, read.indices)):
            indices = [simplify(i, ranges) for i in inner.indices]
            if any(split_affine(i, names) is None for i in indices):
                return False
    return True


def _axes(stage: Stage) -> tuple[Axis, ...]:
    return (*stage.axes, *stage.reduce)


def _is_product(stage: Stage) -> bool:
    return stage.combine == "sum" and isinstance(stage.body, Apply) and stage.body.function == "mul"


def _moved_body(moved: Stage, indices: tuple[Index, ...]) -> Scalar:
    values = {a.name: i for a, i in zip(moved.axes, indices, strict=True)}
    return substitute_indices(moved.body, values)
