"""One row times a matrix that is read once: its rows are added to sums in the L1 cache.

A tile that holds the sums of some columns in registers reads a short run of every row, each from
another page, which hardware does not prefetch.  Along whole rows the matrix streams::

    for columns: for k: sums += x[k] * w[k, columns]     for k by eights: for columns: sums += ...

The sums are loaded and stored once per group of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.index import Bounds, Index, Sym, coefficient, floordiv, loop_range, product, symbols
from modelcc.ir.loop import Alloc, Buffer, For, If, LoopKind, Predicate, Stmt
from modelcc.ir.scalar import identity
from modelcc.ir.scalar_tree import (
    depends_on,
    reads,
    substitute_indices,
    substitute_stage,
    transform,
)
from modelcc.ir.tensor import Apply, Axis, Condition, Number, Read, Scalar, Stage
from modelcc.ir.types import DType, TensorType
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.schedule import RowSums as Schedule
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.pieces import Piece
from modelcc.targets.cpu.steps import Steps
from modelcc.targets.cpu.tiled import emit_tiled

TERMS = 8
"""Rows that are added at once: as many streams as hardware prefetches."""

MOST_TERMS = 32
"""Maximum number of rows at once in a schedule."""

PARTS = 4
"""Blocks per L1-sized block, to provide work for threads when the number of columns is symbolic."""


@dataclass(frozen=True)
class RowSumPlan:
    """The ``product`` of a row and a matrix for each point of the ``outer`` axes, with the parallel
    axis ``column`` and the reduction axis ``term``, its epilogue ``after`` on the same axes, the
    columns of a ``block`` and the ``terms`` that are added at once."""

    product: Stage
    outer: tuple[Axis, ...]
    column: Axis
    term: Axis
    after: tuple[Stage, ...]
    block: int
    terms: int = TERMS


def find_row_sums(kernel: CanonicalKernel, machine: CpuModel) -> RowSumPlan | None:
    """One row times a matrix computed at run time, with its epilogue."""
    product = kernel.stages[0]
    axes = tuple(a for a in product.axes if a.extent != 1)
    if product.combine != "sum" or len(product.reduce) != 1:
        return None
    (term,), size = product.reduce, product.body.dtype.bytes
    wide = [(m, a) for a in axes for m in _matrix(product.body, a, term)]
    if len(wide) != 1:
        return None
    ((matrix, column),) = wide
    if matrix.tensor in kernel.constants or not _pays(column.extent, term.extent, size, machine):
        return None
    stages = [s for stage in kernel.stages for s in _on_axes(stage, axes)]
    if len(stages) < len(kernel.stages) or not all(_follows(s, stages[0]) for s in stages[1:]):
        return None
    outer = tuple(a for a in axes if a != column)
    if not all(depends_on(matrix, a.name) for a in outer):  # several rows times one matrix
        return None
    if machine.threads > 1 and not all(isinstance(a.extent, int) for a in outer):
        return None
    whole = replace(machine, threads=1) if _are_enough(outer, machine) else machine
    block = _block(column.extent, size, whole)
    return RowSumPlan(stages[0], outer, column, term, tuple(stages[1:]), block)


def _are_enough(outer: tuple[Axis, ...], machine: CpuModel) -> bool:
    """Whether there are enough rows for all threads, so that columns need not be divided."""
    rows = product(a.extent for a in outer)
    return isinstance(rows, int) and rows >= machine.threads


def _block(columns: Index, size: int, machine: CpuModel) -> int:
    """Number of sums that stay in the L1 cache beside the rows that stream through it."""
    most = machine.l1_bytes // 4 // size
    if isinstance(columns, int):
        lanes = machine.lanes(8 * size)
        share = -(-columns // (machine.threads * lanes)) * lanes
        return min(most, share)
    return most // PARTS if machine.threads > 1 else most


def _matrix(body: Scalar, column: Axis, term: Axis) -> Iterator[Read]:
    """The only operand of a product of floats that depends on ``column`` and ``term``, if
    contiguous along columns; the other may depend on columns, but then not on terms."""
    match body:
        case Apply("mul", args, DType(is_float=True)):
            wide = [r for a in args for r in reads(a) if depends_on(r, column.name)]
        case _:
            return
    matrices = [r for r in wide if depends_on(r, term.name)]
    for matrix in matrices if len(matrices) == 1 else ():
        *others, last = matrix.indices
        plain = coefficient(last, column.name) == 1 and term.name not in symbols(last)
        if plain and not any(column.name in symbols(i) for i in others):
            yield matrix


def _pays(columns: Index, terms: Index, size: int, machine: CpuModel) -> bool:
    """Whether rows exceed the registers and the matrix exceeds the L2 cache, or may."""
    if isinstance(columns, int):
        registers = machine.vector_bits // 8 * machine.vector_registers
        if columns * size <= registers // 2:
            return False
        return not isinstance(terms, int) or columns * terms * size >= machine.l2_bytes
    return True


def _on_axes(stage: Stage, axes: tuple[Axis, ...]) -> Iterator[Stage]:
    """``stage`` with ``axes`` as its parallel axes; nothing if they do not match."""
    wide = [a for a in stage.axes if a.extent != 1]
    if [a.extent for a in wide] == [a.extent for a in axes]:
        values: dict[str, Index] = {a.name: 0 for a in stage.axes}
        values |= {a.name: Sym(b.name) for a, b in zip(wide, axes, strict=True)}
        yield replace(substitute_stage(stage, values), axes=axes)


def _follows(stage: Stage, product: Stage) -> bool:
    """Whether ``stage`` is an elementwise epilogue of ``product``."""
    own = [r for r in reads(stage.body) if r.tensor == product.output]
    return not stage.reduce and bool(own) and all(r.indices == product.write for r in own)


def emit_row_sums(
    row_sums: RowSumPlan,
    kernel: CanonicalKernel,
    names: FreshNames,
    machine: CpuModel,
    threaded: bool,
    steps: Steps,
) -> list[Stmt]:
    """Loop-level statements of all blocks of columns, in parallel if ``threaded``: over rows, or
    over blocks if these are too few.  ``steps`` plans and records each step."""
    outer = {names.fresh(a.name): a.extent for a in row_sums.outer}
    point = {a.name: Sym(n) for n, a in zip(outer, row_sums.outer, strict=True)}
    counters = {name: loop_range(extent) for name, extent in outer.items()}
    sums = names.fresh("sums")
    emitter = _RowSumEmitter(row_sums, kernel, names, machine, sums, counters, point, steps)
    if threaded and _are_enough(row_sums.outer, machine):
        statements = _blocks(emitter, {}, threaded=False)
        return _nested(outer, statements, "parallel")
    return _blocks(emitter, outer, threaded)


def planned_sums(kernel: CanonicalKernel, machine: CpuModel, wanted: Schedule) -> Steps:
    """The steps of ``wanted``, a schedule that fits."""
    found, steps = find_row_sums(kernel, machine), Steps(wanted.steps)
    if found is not None:
        found = replace(found, block=wanted.block, terms=wanted.terms or found.terms)
        names = FreshNames(frozenset(name for name, _ in kernel.dims))
        emit_row_sums(found, kernel, names, machine, wanted.parallel, steps)
    return steps


def _nested(outer: Mapping[str, Index], body: Sequence[Stmt], kind: LoopKind) -> list[Stmt]:
    """``body`` in the loops ``outer``, of which the outermost is of the ``kind``."""
    statements: Sequence[Stmt] = body
    for depth, (name, extent) in reversed(list(enumerate(outer.items()))):
        own = "serial" if depth else kind
        statements = [For(name, 0, extent, tuple(statements), kind=own)]
    return list(statements)


def _blocks(emitter: _RowSumEmitter, outer: Mapping[str, Index], threaded: bool) -> list[Stmt]:
    """All blocks of columns, each for all points of ``outer``."""
    row_sums = emitter.row_sums
    number = emitter.names.fresh("block")
    extent, size = row_sums.column.extent, row_sums.block
    whole = floordiv(extent, size)
    rest = extent - whole * size
    statements: list[Stmt] = []
    if whole != 0:
        counters = {**emitter.counters, number: loop_range(whole)}
        block = replace(emitter, counters=counters).block(Sym(number) * size, size)
        body = tuple(_nested(outer, tuple(block), "serial"))
        kind = "parallel" if threaded and whole != 1 else "serial"
        statements.append(For(number, 0, whole, body, kind=kind))
    if rest != 0:
        last = _nested(outer, tuple(emitter.block(whole * size, rest)), "serial")
        some = Predicate((Condition(rest, ">", 0),))
        statements += last if isinstance(rest, int) else [If(some, tuple(last))]
    return statements


@dataclass(frozen=True)
class _RowSumEmitter:
    """``sums`` is the buffer's name, ``counters`` are those of the loops around a block, and
    ``point`` is its point on the outer axes."""

    row_sums: RowSumPlan
    kernel: CanonicalKernel
    names: FreshNames
    machine: CpuModel
    sums: str
    counters: Bounds
    point: Mapping[str, Index]
    steps: Steps

    @property
    def dtype(self) -> DType:
        return self.row_sums.product.body.dtype

    def block(self, first: Index, count: Index) -> Iterator[Stmt]:
        """Statements for ``count`` columns from ``first`` on."""
        yield Alloc(Buffer(self.sums, self.dtype, self.row_sums.block, "local"))
        axis = Axis(self.row_sums.column.name, count)
        zero = self._stage(axis, Number(identity("sum", self.dtype), self.dtype))
        yield from self._emit([zero], {})
        terms, most = self.row_sums.term.extent, self.row_sums.terms
        whole = floordiv(terms, most)
        yield from self._rows(axis, first, 0, whole, most)
        yield from self._rows(axis, first, whole * most, terms - whole * most, 1)
        yield from self._emit(list(self._results(axis, first)), {})

    def _rows(
        self, axis: Axis, first: Index, start: Index, times: Index, terms: int
    ) -> Iterator[Stmt]:
        """Adds ``times`` * ``terms`` rows from ``start`` on to the sums."""
        if times == 0:
            return
        number = self.names.fresh("rows")
        added = self._added(axis, first, start + Sym(number) * terms, terms)
        yield For(number, 0, times, tuple(self._emit([added], {number: loop_range(times)})))

    def _stage(self, axis: Axis, body: Scalar) -> Stage:
        return Stage(self.sums, (axis,), (Sym(axis.name),), body)

    def _sum(self, place: Index) -> Read:
        return Read(self.sums, (place,), self.dtype)

    def _place(self, first: Index) -> dict[str, Index]:
        """Indices of the matrix for a block's column: the column, and the outer axes."""
        column = self.row_sums.column.name
        return {**self.point, column: first + Sym(column)}

    def _added(self, axis: Axis, first: Index, row: Index, count: int) -> Stage:
        product, term = self.row_sums.product.body, self.row_sums.term.name
        total: Scalar = self._sum(Sym(axis.name))
        for n in range(count):
            added = substitute_indices(product, {**self._place(first), term: row + n})
            total = Apply("add", (total, added), self.dtype)
        return self._stage(axis, total)

    def _results(self, axis: Axis, first: Index) -> Iterator[Stage]:
        product, place = self.row_sums.product, self._place(first)
        total = self._sum(Sym(axis.name) - first)
        if product.output in self.kernel.outputs:
            plain = replace(product, body=total, reduce=(), combine=None)
            yield replace(substitute_stage(plain, place), axes=(axis,))

        def summed(node: Scalar) -> Scalar:
            return total if isinstance(node, Read) and node.tensor == product.output else node

        for stage in self.row_sums.after:
            body = transform(stage.body, summed)
            yield replace(substitute_stage(replace(stage, body=body), place), axes=(axis,))

    def _emit(self, stages: Sequence[Stage], inner: Bounds) -> list[Stmt]:
        kernel = self.kernel
        sums = TensorType((self.row_sums.block,), self.dtype)
        types = {**dict(kernel.types), self.sums: sums}
        dims: Bounds = {**dict(kernel.dims), **self.counters, **inner}
        outputs = frozenset((*kernel.outputs, self.sums))
        piece = Piece(tuple(stages), outputs, types, dims, frozenset())
        plan = self.steps.tiled(piece, self.machine)
        return emit_tiled(plan, self.names, 1, None, frozenset((self.sums,)))
