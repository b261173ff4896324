"""Strided vectors: square blocks transposed in registers.

If lanes are far apart, a gather loads them one by one.  If neighbouring points of another loop read
contiguous elements, a block is loaded row by row instead, and its columns are the wanted vectors.
If vectors can only be computed strided in the results, as for results that read at rounded-down
indices, a block of them is transposed before it is stored.

Eklundh's method ("A fast computer method for matrix transposing", 1972), in steps that processors
have instructions for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from modelcc.ir.index import Index, coefficient, maximum, minimum, substitute, symbols
from modelcc.ir.loop import Const, Expr, Let, Load, Shuffle, Stmt, Store, Var
from modelcc.ir.scalar_tree import children, reads
from modelcc.ir.tensor import Bind, Guard, Read, Scalar
from modelcc.ir.types import BOOL
from modelcc.schedule.expression import FreshNames, vectorisable
from modelcc.schedule.lanes import Lanes
from modelcc.schedule.nest import LoopVar, Nest

NEAREST = 5
"""Lanes with smaller strides are cheaper to load with their neighbours."""

NARROWEST = 4
"""Loops of fewer points do not pay for a block."""

WIDEST = 16
"""Rows of a block: the registers it occupies."""

SEGMENT_BITS = 128
"""Part of a register within which processors interleave at no additional cost."""


@dataclass(frozen=True)
class TransposedReads:
    """``reads`` are strided by ``lanes`` rows along the vector and contiguous along ``loop``."""

    loop: LoopVar
    reads: tuple[Read, ...]


def find_block(
    nests: Sequence[Nest], lane: str, lanes: int, constants: frozenset[str]
) -> TransposedReads | None:
    """The block in which strided reads of elementwise nests are worth transposing.

    Reads of ``constants`` do not have flat offsets yet.
    """
    if lanes > WIDEST or lanes < NARROWEST or lanes & (lanes - 1) or any(n.own for n in nests):
        return None
    known = [r for nest in nests for r in _always_read(nest.body) if r.tensor not in constants]
    across = [r for r in known if _lies_across(r, lane)]
    loops = [v for v in reversed(nests[-1].parallel) if v.name != lane and _is_wide(v)]
    for loop in loops:
        along = tuple(dict.fromkeys(r for r in across if coefficient(r.indices[0], loop.name) == 1))
        if along:
            return TransposedReads(loop, along)
    return None


def _always_read(scalar: Scalar) -> list[Read]:
    """Unconditional reads at flat offsets."""
    match scalar:
        case Read():
            return [scalar] if len(scalar.indices) == 1 and scalar.dtype != BOOL else []
        case Guard() | Bind():
            return []
        case _:
            return [r for child in children(scalar) for r in _always_read(child)]


def _lies_across(read: Read, lane: str) -> bool:
    stride = coefficient(read.indices[0], lane)
    return stride is not None and not (isinstance(stride, int) and abs(stride) < NEAREST)


def _is_wide(loop: LoopVar) -> bool:
    return not isinstance(loop.extent, int) or loop.extent >= NARROWEST


def load_block(
    block: TransposedReads, points: Sequence[Mapping[str, Index]], lanes: Lanes, names: FreshNames
) -> tuple[list[Stmt], dict[tuple[str, Index], Var]]:
    """Loads the ``reads`` of ``block`` at ``points``, which are consecutive along its loop.

    Returns the statements, and the values by tensor and offset.
    """
    statements: list[Stmt] = []
    found: dict[tuple[str, Index], Var] = {}
    for read in block.reads:
        rows = [_row(read, row, points, lanes) for row in range(lanes.count)]
        columns = _transposed(rows, read.dtype.bits, names, statements)
        for point, column in zip(points, columns, strict=False):
            found[read.tensor, substitute(read.indices[0], point)] = column
    return statements, found


def find_turned(nests: Sequence[Nest], stored: frozenset[str], lanes: int) -> LoopVar | None:
    """A loop to vectorise, with vectors transposed before they are stored, if the innermost loop of
    elementwise nests cannot be vectorised."""
    if lanes > WIDEST or lanes < NARROWEST or lanes & (lanes - 1) or any(n.own for n in nests):
        return None
    inner = next((v for v in reversed(nests[-1].parallel) if v.extent != 1), None)
    if inner is None or not _is_wide(inner):
        return None
    outputs = [n for n in nests if n.output in stored]
    if any(n.body.dtype == BOOL or coefficient(n.store, inner.name) != 1 for n in outputs):
        return None
    internal = {n.output for n in nests}
    return next(
        (
            v
            for v in reversed(nests[-1].parallel)
            if v is not inner and _is_wide(v)
            and all(coefficient(n.store, v.name) is not None for n in outputs)
            and all(vectorisable(n.body, v.name, lanes, internal) for n in nests)
            and all(_lies_along(r, v.name, lanes) for n in nests for r in reads(n.body))
        ),
        None,
    )  # fmt: skip


def _lies_along(read: Read, variable: str, lanes: int) -> bool:
    """Whether vectors along ``variable`` are contiguous or uniform."""
    if len(read.indices) != 1:
        return not read.indices
    if variable not in symbols(read.indices[0]):
        return True
    return Lanes(variable, lanes).split(read.indices[0])[1] in (0, 1)


def store_turned(
    nest: Nest,
    values: Sequence[Expr],
    points: Sequence[Mapping[str, Index]],
    lanes: Lanes,
    names: FreshNames,
) -> list[Stmt]:
    """Stores the vectors of ``nest`` at ``points``, which are contiguous in memory."""
    statements: list[Stmt] = []
    dtype, count = nest.body.dtype, len(points)
    idle = Const(0.0 if dtype.is_float else 0, dtype, lanes.count)
    columns = [*values, *[idle] * (lanes.count - count)]
    rows = _transposed(columns, dtype.bits, names, statements)
    for row, value in enumerate(rows):
        width = _width(nest.output, row, points, lanes)
        if width != 0:
            offset = substitute(nest.store, {**points[0], lanes.variable: row})
            statements.append(Store(nest.output, offset, value, 1, width))
    return statements


def _width(
    tensor: str, row: int, points: Sequence[Mapping[str, Index]], lanes: Lanes
) -> Index | None:
    """Active elements of a row of a block: 0 if the lane is inactive, None for a whole vector."""
    count = len(points)
    width: Index | None = None if count == lanes.count else count
    active = lanes.active_for(tensor)
    if active is None:
        return width
    exists = minimum(maximum(substitute(active, points[0]) - row, 0), 1)
    return width if exists == 1 else exists * count


def _row(read: Read, row: int, points: Sequence[Mapping[str, Index]], lanes: Lanes) -> Expr:
    """The elements of one lane at all points; zero if the lane is inactive."""
    offset = substitute(read.indices[0], {**points[0], lanes.variable: row})
    width = _width(read.tensor, row, points, lanes)
    if width == 0:
        return Const(0.0 if read.dtype.is_float else 0, read.dtype, lanes.count)
    return Load(read.tensor, offset, read.dtype, lanes.count, 1, width)


def _transposed(
    rows: Sequence[Expr], bits: int, names: FreshNames, statements: list[Stmt]
) -> list[Var]:
    """The columns of a square block, named in ``statements``."""

    def named(value: Expr) -> Var:
        name = names.fresh("turned")
        statements.append(Let(name, value))
        return Var(name, value.dtype, value.lanes)

    vectors = [named(row) for row in rows]
    size = len(vectors)
    segment = min(size, SEGMENT_BITS // bits)
    run = 1
    while run < segment:
        low, high = _interleaving(size, segment, run)
        following = list(vectors)
        for base in range(0, size, 2 * run):
            for n in range(run):
                a, b = vectors[base + n], vectors[base + run + n]
                following[base + 2 * n] = named(Shuffle(a, b, low))
                following[base + 2 * n + 1] = named(Shuffle(a, b, high))
        vectors, run = following, 2 * run
    parts = size // segment
    for _ in range(parts.bit_length() - 1):
        even, odd = _every_second(size, segment)
        following = list(vectors)
        for part in range(parts // 2):
            for n in range(segment):
                a, b = (vectors[(2 * part + side) * segment + n] for side in (0, 1))
                following[part * segment + n] = named(Shuffle(a, b, even))
                following[(part + parts // 2) * segment + n] = named(Shuffle(a, b, odd))
        vectors = following
    return vectors


def _interleaving(size: int, segment: int, run: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shuffles that interleave runs of two vectors, from the lower and from the upper half of each
    segment."""

    def places(first: int) -> tuple[int, ...]:
        return tuple(
            start + n + lane
            for base in range(first, size, segment)
            for n in range(0, segment // 2, run)
            for start in (base, size + base)
            for lane in range(run)
        )

    return places(0), places(segment // 2)


def _every_second(size: int, segment: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shuffles to the even and the odd segments of two vectors, one after the other."""

    def places(first: int) -> tuple[int, ...]:
        starts = range(first * segment, 2 * size, 2 * segment)
        return tuple(start + lane for start in starts for lane in range(segment))

    return places(0), places(1)
