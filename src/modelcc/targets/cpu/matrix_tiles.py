"""Products of bf16 by instructions for whole tiles: blocks of sums in memory, then the epilogue.

A block is computed by a routine (:mod:`modelcc.targets.isa.amx`): points along one or two loops
that move the left operand, by vectors of packed columns.  The epilogue runs vector by vector, while
the block is in the L1 cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from modelcc.ir.index import Index, Sym, coefficient, substitute
from modelcc.ir.loop import Alloc, Argument, Buffer, For, Let, Load, RoutineCall, Stmt
from modelcc.ir.tensor import Read, Scalar
from modelcc.ir.types import F32
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.schedule.parallel import Chosen, Point
from modelcc.schedule.schedule import Factors
from modelcc.schedule.segments import Segment, even_tiles
from modelcc.targets.cpu.dots import Dots
from modelcc.targets.isa.amx import COLUMNS, DEPTHS, ROWS, Loops, TileProduct, tile_product

TILES = 8
"""Row tiles of a block: its sums, with two panels, take a third of the L1 cache."""

SHORT_TERMS, SHORT_TILES = 256, 16
"""Reductions of up to so few terms use larger blocks, to amortise the tile configuration."""

LEAST_ROWS = 4
"""Minimum number of rows."""


@dataclass(frozen=True)
class MatrixTiles:
    """The loops of blocks of sums: ``rows``, of ``left``, and ``columns``, whose panels are
    ``panel`` elements apart in ``right``.  ``steps`` of ``depth`` terms are those of
    :class:`~modelcc.targets.isa.amx.TileProduct`.  ``block`` has the sizes of a block.
    """

    left: Read
    right: Read
    rows: tuple[LoopVar, ...]
    columns: str
    panel: int
    steps: Loops
    depth: int
    block: Factors
    start: Mapping[str, Index]

    def points(self, variable: str) -> int:
        """Maximum size of a block along a loop."""
        return dict(self.block).get(variable, 1)

    def segments(self, loop: LoopVar) -> tuple[Segment, ...] | None:
        """Blocks along ``loop``; None if it is not blocked."""
        extent, most = loop.extent, self.points(loop.name)
        if loop.name == self.columns or loop in self.rows[:-1]:
            return tuple(even_tiles(0, extent, most, interior=True))
        if loop not in self.rows or not isinstance(extent, int):
            return None
        found: list[Segment] = []
        for run in even_tiles(0, extent, ROWS, interior=True):
            assert isinstance(run.start, int) and isinstance(run.count, int)
            several = max(1, most // run.tile)
            whole, rest = divmod(run.count, several)
            after = run.start + whole * several * run.tile
            found += [Segment(run.start, whole, several * run.tile, True)] if whole else []
            found += [Segment(after, 1, rest * run.tile, True)] if rest else []
        return tuple(found)

    def product(self, chosen: Chosen) -> TileProduct:
        """The routine that computes a block."""
        *outer, inner = self.rows
        offset = self.left.indices[0]
        count = chosen[inner.name].tile
        tile = next(count // n for n in range(-(-count // ROWS), count + 1) if count % n == 0)
        stride = _step(offset, inner)
        around = tuple((chosen[v.name].tile, _step(offset, v)) for v in outer)
        tiles = (*around, (count // tile, stride * tile))
        panels = chosen[self.columns].tile
        return TileProduct(tile, tiles, stride, panels, self.panel, self.steps, self.depth)


def find_tiles(
    body: Scalar, anchor: Nest, dots: Dots, lane: LoopVar, columns: str, order: Sequence[LoopVar]
) -> MatrixTiles | None:
    """The blocks of a reduction of ``body``, whose products are split into ``dots`` and whose
    ``columns`` are packed vector by vector; None if they are impossible or too small."""
    factors = dots.factors(body, lane)
    if factors is None or lane.extent != COLUMNS:
        return None
    left, right = factors
    a, b = left.indices[0], right.indices[0]
    loops = (*order, *anchor.reduce)
    moves = {v.name: (coefficient(a, v.name), coefficient(b, v.name)) for v in loops}
    if not all(isinstance(s, int) and s >= 0 for each in moves.values() for s in each):
        return None
    steps = _steps(anchor, a, b)
    rows = [v for v in order if _step(a, v) and not _step(b, v) and v.extent != 1]
    known = all(isinstance(v.extent, int) for v in (*rows, anchor.var(columns)))
    if steps is None or not rows or not known or _step(a, anchor.var(columns)):
        return None
    depth, terms = steps[-1][1], steps[-1][1] * prod(n for n, _ in steps)
    block = _block(rows[-2:], anchor.var(columns), terms)
    if block is None:
        return None
    start: dict[str, Index] = {v.name: 0 for v in (*anchor.reduce, lane, dots.loop)}
    panel = _step(b, anchor.var(columns)) or terms * COLUMNS
    return MatrixTiles(left, right, tuple(rows[-2:]), columns, panel, steps, depth, block, start)


def _step(offset: Index, loop: LoopVar) -> int:
    found = coefficient(offset, loop.name)
    assert isinstance(found, int)
    return found


def _steps(anchor: Nest, a: Index, b: Index) -> Loops | None:
    """Reduction loops over steps, if the packed operand is contiguous from one to the next."""
    ordered = sorted((v for v in anchor.reduce if v.extent != 1), key=lambda v: _step(b, v))
    axes = {v.axis: anchor.extents[v.axis] for v in anchor.reduce}
    extents = [v.extent for v in ordered]
    whole = all(isinstance(n, int) for n in (*extents, *axes.values()))
    if not ordered or not whole:
        return None
    pairs, *others = ordered
    terms = 2 * _extent(pairs)
    depth = next((d for d in DEPTHS if terms % d == 0), 0)
    beside = _step(a, pairs) == 2 and _step(b, pairs) == 2 * COLUMNS
    if not depth or not beside or terms * prod(map(_extent, others)) != prod(axes.values()):
        return None
    place = terms * COLUMNS
    for v in others:
        if _step(b, v) != place:
            return None
        place *= _extent(v)
    loops = [(_extent(v), _step(a, v)) for v in reversed(others)]
    return (*loops, (terms // depth, depth))


def _extent(loop: LoopVar) -> int:
    assert isinstance(loop.extent, int)
    return loop.extent


def _block(rows: Sequence[LoopVar], columns: LoopVar, terms: int) -> Factors | None:
    """Sizes of a block, up to the maximum; None if there are few rows."""
    inner, count = rows[-1], prod(map(_extent, rows))
    if count < LEAST_ROWS:
        return None
    most = SHORT_TILES if terms <= SHORT_TERMS else TILES
    along = min(-(-_extent(inner) // ROWS), most)
    found = [(columns.name, min(2, _extent(columns))), (inner.name, along * ROWS)]
    if len(rows) > 1:
        found.append((rows[0].name, max(1, min(most // along, _extent(rows[0])))))
    return tuple(found)


def emit_block(
    tiles: MatrixTiles,
    names: FreshNames,
    point: Point,
    chosen: Chosen,
    epilogue: Callable[[Point, str], list[Stmt]],
) -> list[Stmt]:
    """The block of sums at ``point``, and ``epilogue`` for each vector of them."""
    product = tiles.product(chosen)
    sums = names.fresh("sums")
    at = {**tiles.start, **point}
    places = ((r.tensor, substitute(r.indices[0], at)) for r in (tiles.left, tiles.right))
    given = (Argument(sums, 0), *(Argument(name, offset) for name, offset in places))
    counters = {v: names.fresh(v) for v in (*(r.name for r in tiles.rows), tiles.columns)}
    row: Index = 0
    for v in tiles.rows:
        row = row * chosen[v.name].tile + Sym(counters[v.name])
    offset = row * product.width + Sym(counters[tiles.columns]) * COLUMNS
    corner = {**point, **{v: point[v] + Sym(counter) for v, counter in counters.items()}}
    total = names.fresh("acc")
    body = (Let(total, Load(sums, offset, F32, COLUMNS)), *epilogue(corner, total))
    for v in reversed(counters):
        body = (For(counters[v], 0, chosen[v].tile, body),)
    alloc = Alloc(Buffer(sums, F32, product.rows * product.width, "local"))
    return [alloc, RoutineCall(tile_product(product), given), *body]
