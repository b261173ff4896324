"""The epilogue of a product through shared memory: warps store sums there contiguously, and threads
finish them in vectors of neighbouring columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from modelcc.ir.index import Index, Range, Sym, floordiv, minimum, mod, simplify, symbols
from modelcc.ir.loop import Buffer, Convert, Expr, For, If, Load, Predicate, Stmt, Store
from modelcc.ir.scalar import FUNCTIONS
from modelcc.ir.scalar_tree import walk
from modelcc.ir.tensor import Apply, Cast, Condition, Read, Scalar
from modelcc.ir.types import BF16, F16, F32, DType
from modelcc.schedule.expression import vectorisable
from modelcc.schedule.lanes import Lanes
from modelcc.schedule.structure import Group
from modelcc.targets.gpu.contraction import Contraction
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    Point,
    extent_of,
    not_implied,
    only_where,
)
from modelcc.targets.gpu.partial_sums import PartialSums
from modelcc.targets.gpu.products.epilogue_prefetch import (
    Asked,
    Early,
    Room,
    SharedIndices,
    ask,
    in_a_loop,
    one_after_the_other,
    one_ahead,
)

VECTOR_BYTES = 16
TOGETHER = 16
"""Sums of a part that a thread loads at the same time."""

HEAVY = 8
"""The cost from which on a function counts as many instructions."""

MOST_ROUNDS = 8
"""Rounds that are unrolled where operands differ and each round has few instructions: a loop
prefetches only one round ahead."""

_BANKS, _PAIRS, _ROWS = 32, 8, 4
"""Banks of shared memory, and offsets of rows in them that avoid bank conflicts: where threads
store pairs of four rows, and where they store neighbours in eight rows each, of which every second
is in the same bank."""


def kept_type(group: Group) -> DType:
    """The type of sums in a slab: the 16-bit type that they are rounded to wherever they are read,
    or f32."""
    sums = frozenset(nest.output for nest in group.anchors)
    if not sums or sums & group.stored:
        return F32
    nodes = [node for nest in group.nests if not nest.reduce for node in walk(nest.body)]
    rounded = [n.dtype for n in nodes if isinstance(n, Cast) and _is_read(n.value, sums)]
    (kept, *others) = {*rounded} or {F32}
    every = len(rounded) == sum(_is_read(node, sums) for node in nodes)
    return kept if every and not others and kept in (F16, BF16) else F32


def _is_read(scalar: Scalar, tensors: frozenset[str]) -> bool:
    return isinstance(scalar, Read) and scalar.tensor in tensors


def slab_pitch(columns: int, turned: bool = False) -> int:
    """Elements from a row of ``columns`` sums to the next one; in ``turned`` (transposed) tiles, a
    thread holds sums of neighbouring rows."""
    return columns + ((_ROWS if turned else _PAIRS) - columns) % (_BANKS // 2)


@dataclass(frozen=True)
class _Cells:
    """Statements ``common`` to all vectors, and those of each, with its conditions."""

    common: list[Stmt]
    each: list[tuple[tuple[Condition, ...], list[Stmt]]]

    @property
    def there(self) -> tuple[Condition, ...]:
        """The conditions of all vectors."""
        return tuple(dict.fromkeys(c for conditions, _ in self.each for c in conditions))

    @property
    def together(self) -> list[Stmt]:
        """All vectors, without conditions: stores come after all values are computed."""
        every = [s for _, body in self.each for s in body]
        return [*self.common, *sorted(every, key=lambda s: isinstance(s, Store))]

    @property
    def apart(self) -> list[Stmt]:
        """Vectors under their conditions, one after the other."""
        return [*self.common, *(s for one in self.each for s in only_where(*one))]


@dataclass(frozen=True)
class EpilogueStaging:
    """Sums of ``rows`` by ``columns`` results of the tile that ``starts`` at a row and a column,
    for a kernel with ``threads``, whose index is ``thread``; those of a twin product follow in the
    same row. ``pixels`` maps rows of the tile to an image's, if rows are not consecutive.  Sums in
    ``parts`` are in global memory instead; a 16-bit ``dtype`` means that sums were rounded, as the
    epilogue does first.  The slab may alias tiles (``over``); if ``turned`` (transposed), a thread
    holds sums of neighbouring rows."""

    kernel: GroupKernel
    found: Contraction
    launch: Launching
    batch: Point
    starts: tuple[Index, Index]
    rows: int
    columns: int
    dtype: DType
    thread: Index
    threads: int
    name: str
    pixels: Callable[[Index], Point] | None = None
    parts: PartialSums | None = None
    over: bool = False
    turned: bool = False

    @property
    def pitch(self) -> int:
        """Elements from a row to the next one."""
        return slab_pitch(self.columns * self._products, self.turned)

    @property
    def _products(self) -> int:
        """Sums per result."""
        return len(self.found.rights)

    @cached_property
    def buffer(self) -> Buffer:
        """The shared memory."""
        return Buffer(self.name, self.dtype, self.rows * self.pitch, "shared", over=self.over)

    @cached_property
    def lanes(self) -> int:
        """Neighbouring columns that a thread finishes at once: 16 bytes of the narrowest result, if
        the epilogue can be vectorised."""
        group, last = self.kernel.group, self.found.columns[-1]
        made = {n.output for n in group.nests}
        later = [n for n in group.nests if not n.reduce]
        lanes = VECTOR_BYTES // min(self.kernel.types[name].dtype.bytes for name in group.stored)
        while lanes > 1:
            whole = isinstance(last.extent, int) and last.extent % lanes == 0
            whole = whole and self.columns % lanes == 0
            if whole and all(vectorisable(n.body, last.name, lanes, made) for n in later):
                return lanes
            lanes //= 2
        return 1

    def results(self, row_of: Callable[[Index], Index]) -> list[Stmt]:
        """The epilogue of the sums in the slab, whose rows ``row_of`` maps to those of the tile."""
        number, together = Sym(self.kernel.names.fresh("n")), self._together(self._vectors)
        rounds = self._own // together
        return [For(number.name, 0, rounds, self._round(number, rounds, together, row_of))]

    def slice(self, number: Index, count: int, row_of: Callable[[Index], Index]) -> Asked:
        """Slice ``number`` of ``count`` of what :meth:`early` does."""
        ranges = {**self.launch.ranges, **dict.fromkeys(symbols(number), Range(0, count - 1))}
        body = self._early_round(number, {}, ranges, row_of, self._own // count)
        (asked,) = ask([body], self.name)
        return asked

    def slices(self, most: int) -> int | None:
        """Number of equal slices, at most ``most``, of a thread's results such that it can hold a
        slice's operands; None if there is none."""
        held = max(self._elements // self.lanes, 1)
        each = (n for n in range(1, held + 1) if self._own % n == 0)
        whole = self._vectors % self.threads == 0
        return next((self._own // n for n in each if self._own // n <= most and whole), None)

    @property
    def _vectors(self) -> int:
        """Vectors of all threads."""
        return self.rows * (self.columns // self.lanes)

    @property
    def _own(self) -> int:
        """Vectors of a thread."""
        return -(-self._vectors // self.threads)

    def _round(
        self, number: Index, count: int, together: int, row_of: Callable[[Index], Index]
    ) -> tuple[Stmt, ...]:
        """Round ``number`` of ``count``, with ``together`` vectors of each thread."""
        ranges = {**self.launch.ranges, **dict.fromkeys(symbols(number), Range(0, count - 1))}
        first = self.thread + number * (self.threads * together)
        inner = Evaluation(self.kernel.names)
        which = [first + self.threads * n for n in range(together)]
        places = [self._place(inner, vector, ranges) for vector in which]
        cells = self._cells(places, row_of)
        there = not_implied((Condition(which[-1], "<", self._vectors),), ranges)
        inner.statements += only_where(there, self._whole(cells, first, together, row_of))
        return tuple(inner.statements)

    def early(self, row_of: Callable[[Index], Index], registers: int) -> Early:
        """:meth:`results` of whole sums, where a thread has this many ``registers`` for operands
        before the sums are complete, and also those of its sums afterwards.

        All vectors are computed, those out of range as copies of the last ones, and only those in
        range are stored: no load waits for a condition."""
        names, together = self.kernel.names, self._together(self._vectors)
        number, count = names.fresh("n"), self._own // together
        room = Room(registers, registers + (self._own - together) * self.lanes)

        def asked_at(name: str) -> Asked:
            ranges = {**self.launch.ranges, name: Range(0, count - 1)}
            (asked,) = ask([self._early_round(Sym(name), {}, ranges, row_of, together)], self.name)
            return asked

        once = asked_at(number)
        if not once.loads:
            return Early((), (), tuple(self.results(row_of)))
        if count > 1 and not once.varies(number):
            return in_a_loop(number, count, once, room)
        if count > (1 if self._heavy else MOST_ROUNDS):
            return one_ahead(number, count, asked_at, names.fresh, room)
        known, ranges = dict[Index, Index](), self.launch.ranges
        rounds = [
            self._early_round(which, known, ranges, row_of, together) for which in range(count)
        ]
        return one_after_the_other(ask(rounds, self.name), room)

    def _early_round(
        self,
        number: Index,
        known: dict[Index, Index],
        ranges: Mapping[str, Range],
        row_of: Callable[[Index], Index],
        together: int,
    ) -> list[Stmt]:
        """``together`` vectors of a round, which are stored after all of them are computed."""
        body, stores = list[Stmt](), list[Stmt]()
        lane = self.kernel.names.fresh("l")
        lanes = Lanes(lane, self.lanes) if self.lanes > 1 else None
        for which in range(together):
            cell = SharedIndices(self.kernel.names, body, lanes, known)
            vector = self.thread + (number * together + which) * self.threads
            (own, near), there = self._within({"": vector}, {"": self._vectors}, ranges)
            if there:
                own = {"": cell.bind("i", near[""])}
            known_ranges = dict.fromkeys(symbols(own[""]) if there else (), self._every)
            stores += self._early_cell(cell, own[""], {**ranges, **known_ranges}, there, row_of)
        return [*body, *stores]

    @property
    def _every(self) -> Range:
        """The range of vector numbers."""
        return Range(0, self._vectors - 1)

    def _early_cell(
        self,
        cell: SharedIndices,
        vector: Index,
        ranges: Mapping[str, Range],
        there: tuple[Condition, ...],
        row_of: Callable[[Index], Index],
    ) -> list[Stmt]:
        """Computes results number ``vector``, which are stored if these and ``there`` hold."""
        group, stores = self.kernel.group, self.kernel.stored
        row, column = self._place(cell, vector, ranges)
        ranges = self._ranges_of(row, column, ranges)
        own, near, inside = self._points(cell, row_of(row), column, ranges)
        made, totals = dict[str, Expr](), iter(self._sums(row, column))
        stored = Evaluation(self.kernel.names, lanes=cell.lanes)
        for nest in group.nests:
            value = next(totals) if nest.reduce else cell.value(nest.body, near, made)
            made[nest.output] = cell.named("v", value)
            if nest.output in stores:
                stored.store(nest, own, made[nest.output])
        return only_where((*there, *inside), stored.statements)

    def _points(
        self, cell: Evaluation, row: Index, column: Index, ranges: Mapping[str, Range]
    ) -> tuple[Point, Point, tuple[Condition, ...]]:
        """The point at a row and a column of the tile, the same clamped to the results, and the
        conditions under which they are equal."""
        found, last = self.found, self.found.columns[-1].name
        position = {last: floordiv(self.starts[1] + column, self.lanes)}
        extent = {last: floordiv(extent_of(found.columns), self.lanes)}
        columns, inside = self._within(position, extent, ranges)
        if self.pixels is None:
            place, extents = {"": self.starts[0] + row}, {"": extent_of(found.rows)}
        else:
            place, extents = self.pixels(row), {v.name: v.extent for v in found.rows}
        rows, there = self._within(place, extents, ranges)
        points = list[Point]()
        for at_rows, at_columns in zip(rows, columns, strict=True):
            if self.pixels is None:
                placed = cell.place(found.rows, at_rows[""])
            else:
                placed = {name: cell.bind(name, at_rows[name]) for name in extents}
            at = cell.place_vector(found.columns, at_columns[last], self.lanes)
            if cell.lanes is not None:
                at[last] += Sym(cell.lanes.variable)
            points.append({**self.batch, **placed, **at})
        return points[0], points[1], (*there, *inside)

    def _within(
        self, places: Point, extents: Point, ranges: Mapping[str, Range]
    ) -> tuple[tuple[Point, Point], tuple[Condition, ...]]:
        """``places``, clamped to ``extents``, and the conditions that none was out of range."""
        near, inside = dict(places), list[Condition]()
        for name, place in places.items():
            beyond = not_implied((Condition(place, "<", extents[name]),), ranges)
            inside += beyond
            if beyond:
                near[name] = minimum(place, extents[name] - 1)
        return (places, near), tuple(inside)

    def _ranges_of(
        self, row: Index, column: Index, ranges: Mapping[str, Range]
    ) -> Mapping[str, Range]:
        """``ranges``, and those of a row and a column of the tile."""
        rows = {name: Range(0, self.rows - 1) for name in symbols(row)}
        columns = {name: Range(0, self.columns // self.lanes - 1) for name in symbols(column)}
        return {**ranges, **rows, **columns}

    def _together(self, vectors: int) -> int:
        """Vectors whose operands a thread loads before it finishes the first one."""
        fitting = (n for n in (4, 2) if n * self.lanes <= self._elements)
        return next((n for n in fitting if vectors % (self.threads * n) == 0), 1)

    @property
    def _elements(self) -> int:
        """Results that a thread finishes together: fewer if that takes many instructions."""
        return TOGETHER if self.parts is not None or self._heavy else 2 * TOGETHER

    @cached_property
    def _heavy(self) -> bool:
        """Whether the epilogue takes many instructions."""
        later = (node for n in self.kernel.group.nests if not n.reduce for node in walk(n.body))
        return any(isinstance(e, Apply) and FUNCTIONS[e.function].cost > HEAVY for e in later)

    def _place(
        self, at: Evaluation, vector: Index, ranges: Mapping[str, Range]
    ) -> tuple[Index, Index]:
        """Row and column of a vector's first sum."""
        per_row = self.columns // self.lanes
        row = at.bind("r", simplify(floordiv(vector, per_row), ranges))
        return row, at.bind("c", simplify(mod(vector, per_row), ranges)) * self.lanes

    def _cells(
        self, places: Sequence[tuple[Index, Index]], row_of: Callable[[Index], Index]
    ) -> _Cells:
        """Vectors of results."""
        outer, count = Evaluation(self.kernel.names), self._products
        if self.parts is not None:
            every = [one for place in places for one in self._each(*place)]
            found = self.parts.totals(outer, every, self.lanes)
            totals = [found[n : n + count] for n in range(0, len(found), count)]
        else:
            totals = [self._sums(*place) for place in places]
        cells = [
            self._cell(row, column, row_of, own)
            for (row, column), own in zip(places, totals, strict=True)
        ]
        return _Cells(outer.statements, cells)

    def _each(self, row: Index, column: Index) -> list[tuple[Index, Index]]:
        """Rows and columns of the sums of a result."""
        return [(row, column + n * self.columns) for n in range(self._products)]

    def _sums(self, row: Index, column: Index) -> list[Expr]:
        """Sums of neighbouring results, of each product, from the slab."""
        offsets = (at * self.pitch + place for at, place in self._each(row, column))
        kept = [Load(self.name, offset, self.dtype, self.lanes) for offset in offsets]
        return [Convert(k, F32) if self.dtype in (F16, BF16) else k for k in kept]

    def _whole(
        self, cells: _Cells, first: Index, count: int, row_of: Callable[[Index], Index]
    ) -> list[Stmt]:
        """``count`` vectors (``cells``) from number ``first`` on.  If all are in range, stores come
        after all loads, so that these are in flight together."""
        there = cells.there
        if not there:
            return cells.together
        if count == 1 or self.parts is not None:
            return cells.apart
        number, one = Sym(self.kernel.names.fresh("n")), Evaluation(self.kernel.names)
        place = self._place(one, first + number * self.threads, {})
        one.statements += self._cells([place], row_of).apart
        apart = For(number.name, 0, count, tuple(one.statements))
        return [If(Predicate(there), tuple(cells.together), (apart,))]

    def _cell(
        self, row: Index, column: Index, row_of: Callable[[Index], Index], totals: Sequence[Expr]
    ) -> tuple[tuple[Condition, ...], list[Stmt]]:
        """Neighbouring results, and the conditions that they are in range."""
        names, lanes, found = self.kernel.names, self.lanes, self.found
        lane = names.fresh("l")
        cell = Evaluation(names, lanes=Lanes(lane, lanes) if lanes > 1 else None)
        columns = self.starts[1] + column
        ranges = self._ranges_of(row, column, self.launch.ranges)
        at = cell.place_vector(found.columns, floordiv(columns, lanes), lanes)
        if lanes > 1:
            at[found.columns[-1].name] += Sym(lane)
        placed, there = self._placed(cell, row_of(row))
        cell.finish(self.kernel.group, {**self.batch, **placed, **at}, totals)
        inside = (*there, Condition(columns, "<", extent_of(found.columns)))
        return not_implied(inside, ranges), cell.statements

    def _placed(self, cell: Evaluation, row: Index) -> tuple[Point, tuple[Condition, ...]]:
        """The point of a row of the tile, and the conditions that it is in range."""
        rows = self.found.rows
        if self.pixels is None:
            place = self.starts[0] + row
            return cell.place(rows, place), (Condition(place, "<", extent_of(rows)),)
        places = self.pixels(row)
        there = tuple(Condition(places[v.name], "<", v.extent) for v in rows)
        return {v.name: cell.bind(v.name, places[v.name]) for v in rows}, there
