"""Two contractions, the second of which sums rows of the first: in blocks of rows, in cache.

A thread computes the scores of a block of rows into a local buffer, overwrites them with weights,
and sums the rows.  Long rows, and those of symbolic length, are cut into blocks of keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

from modelcc.ir.index import (
    Bounds,
    Index,
    Sym,
    ceildiv,
    compare,
    floordiv,
    loop_range,
    maximum,
    minimum,
    mod,
    product,
    substitute,
)
from modelcc.ir.loop import Alloc, BindIndex, Buffer, For, If, IndexOf, Predicate, Stmt
from modelcc.ir.tensor import Condition
from modelcc.ir.types import I64, Layout, Part, TensorType
from modelcc.passes.tensor.gemm_pair import match_gemm_pair
from modelcc.passes.tensor.online_softmax import online_softmax, seen_keys
from modelcc.passes.tensor.reduction_domain import ReductionDomain
from modelcc.schedule.block_stages import BlockRange as Block
from modelcc.schedule.block_stages import BlockStages, StageGroup
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.expression import FreshNames
from modelcc.schedule.schedule import RowBlocks as Schedule
from modelcc.schedule.schedule import ScheduleError, Step, Tiled
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.cpu.pieces import Piece
from modelcc.targets.cpu.rows import emit_rows, plan_rows
from modelcc.targets.cpu.steps import Steps
from modelcc.targets.cpu.tiled import emit_tiled

MOST_ROWS = 64
"""Rows of a block: enough for operand reuse, few enough for many blocks."""

MOST_SCORES = 1 << 17
"""Maximum number of scores of a block in a schedule."""

FEW_KEYS = 128
"""Keys of a block with a mask to the first keys (causal): blocks masked for all rows are
skipped."""

VECTOR = 16
"""Rows of scores are padded to multiples of this."""


Product: TypeAlias = Literal["scores", "total"]
"""The two contractions."""

Tiles: TypeAlias = dict[Product, tuple[Piece, Tiled]]
"""The products of a whole block, and their tilings."""


class Planned(NamedTuple):
    """The plan of blocks: the products of a whole one, and all other steps."""

    products: Tiles
    steps: Steps


@dataclass(frozen=True)
class RowBlockPlan:
    """``rows`` of a block, and ``keys``; None: all of them at once.

    ``scores`` and ``total`` are the tiles of the products in a whole block, ``steps`` all other
    steps; None or none: default.
    """

    stages: BlockStages
    rows: int
    keys: int | None
    scores: Tiled | None = None
    total: Tiled | None = None
    steps: tuple[Step, ...] = ()

    def tiles(self, product: Product) -> Tiled | None:
        """The tile of one of the products."""
        return self.scores if product == "scores" else self.total

    @property
    def loops(self) -> list[tuple[str, Index]]:
        """Names and extents of the loops over blocks, without that over blocks of a row axis."""
        return [(a.name, a.extent) for a in self.stages.pair.outer]

    @property
    def columns(self) -> int:
        """Elements of a row of scores in memory."""
        extent = self.keys or self.stages.pair.key.extent
        assert isinstance(extent, int)
        return -(-extent // VECTOR) * VECTOR


def find_row_blocks(
    kernel: CanonicalKernel, machine: CpuModel, wanted: Schedule | None = None
) -> RowBlockPlan | None:
    """A plan of ``kernel`` in blocks of rows, as ``wanted`` if given; None if it does not match.
    :class:`ScheduleError` if ``wanted`` does not fit.

    The scores of a block take an eighth of the L2 cache: their operands pass through it, too.
    """
    pair = match_gemm_pair(kernel.stages, frozenset(name for name, _ in kernel.dims))
    if pair is None or kernel.outputs != (pair.results[-1].output,):
        return None
    weights = online_softmax(pair)
    rows, keys = pair.row.extent, pair.key.extent
    empty = not compare(keys, ">=", 1, dict(kernel.dims))
    stages = BlockStages(pair, weights, empty)
    if wanted is not None:
        return _wanted(stages, wanted)
    room = machine.l2_bytes // 8 // pair.scores[-1].body.dtype.bytes
    most = max(room // MOST_ROWS // VECTOR * VECTOR, VECTOR)
    if weights is not None and seen_keys(pair, weights) is not None:
        most = min(most, FEW_KEYS)
    if isinstance(keys, int) and (weights is None or keys <= most):
        return RowBlockPlan(stages, _even(rows, min(MOST_ROWS, max(room // keys, 1))), None)
    return RowBlockPlan(stages, _even(rows, MOST_ROWS), most)


def _wanted(stages: BlockStages, wanted: Schedule) -> RowBlockPlan:
    keys, whole = wanted.keys or None, stages.pair.key.extent
    if wanted.rows < 1 or wanted.keys < 0:
        raise ScheduleError(f"blocks have rows and keys, not {wanted.rows} and {wanted.keys}")
    if keys is None and not isinstance(whole, int):
        raise ScheduleError("how many keys there are is known in the run only: they need blocks")
    if keys is not None and stages.weights is None:
        raise ScheduleError("weights depend on all keys of a row: keys=0")
    if wanted.rows * (keys or 1) > MOST_SCORES:
        raise ScheduleError(f"a block has at most {MOST_SCORES} scores, which are on the stack")
    tiles = wanted.scores, wanted.total
    if any(tiled is not None and tiled.parallel != 1 for tiled in tiles):
        raise ScheduleError("a function forks once, for its blocks: products are not parallel")
    return RowBlockPlan(stages, wanted.rows, keys, *tiles, wanted.steps)


def _even(extent: Index, most: int) -> int:
    """Rows of blocks as even as possible."""
    return -(-extent // -(-extent // most)) if isinstance(extent, int) else most


def emit_row_blocks(
    blocks: RowBlockPlan,
    kernel: CanonicalKernel,
    names: FreshNames,
    machine: CpuModel,
    threaded: bool,
) -> tuple[list[Stmt], Planned]:
    """Loop-level statements of all blocks, in parallel if ``threaded``, and their plan;
    :class:`ScheduleError` if requested steps do not fit."""
    counter, number = names.fresh("block"), names.fresh("rows")
    count = ceildiv(blocks.stages.pair.row.extent, blocks.rows)
    loops = [*blocks.loops, (number, count)]
    bound: list[Stmt] = []
    position: Index = Sym(counter)
    for depth, (name, extent) in reversed(list(enumerate(loops))):
        own = position if depth == 0 else mod(position, extent)
        bound.append(BindIndex(name, IndexOf(own, I64)))
        position = floordiv(position, extent)
    dims: Bounds = {**dict(kernel.dims), **{name: loop_range(extent) for name, extent in loops}}
    planned = Planned({}, Steps(blocks.steps))
    emitter = _RowBlockEmitter(blocks, dict(kernel.types), dims, names, machine, planned)
    body = (*emitter.buffers(), *bound, *emitter.rows(Sym(number)))
    total = product(extent for _, extent in loops)
    planned.steps.check()
    return [For(counter, 0, total, body, kind="parallel" if threaded else "serial")], planned


def planned_blocks(kernel: CanonicalKernel, machine: CpuModel, wanted: Schedule) -> Planned:
    """The plan of blocks by ``wanted``; :class:`ScheduleError` if that does not fit."""
    blocks = find_row_blocks(kernel, machine, wanted)
    if blocks is None:
        return Planned({}, Steps())
    names = FreshNames(frozenset(name for name, _ in kernel.dims))
    return emit_row_blocks(blocks, kernel, names, machine, wanted.parallel)[1]


@dataclass(frozen=True)
class _RowBlockEmitter:
    blocks: RowBlockPlan
    types: Mapping[str, TensorType]
    dims: Bounds
    names: FreshNames
    machine: CpuModel
    planned: Planned
    """Filled in while statements are emitted."""

    def buffers(self) -> Iterator[Stmt]:
        """Local buffers of one block."""
        for name, type_ in self._local(None).items():
            yield Alloc(Buffer(name, type_.dtype, type_.physical.size(type_.shape), "local"))

    def _local(self, padded: Index | None) -> dict[str, TensorType]:
        """Types of local tensors; rows of scores are in the layout of ``padded`` keys, if any."""
        stages, rows = self.blocks.stages, self.blocks.rows
        pair, dtype = stages.pair, stages.pair.scores[-1].body.dtype
        scores = TensorType((rows, self.blocks.columns), dtype)
        if isinstance(padded, int) and -(-padded // VECTOR) * VECTOR == self.blocks.columns:
            parts = (Part(0), Part(1, VECTOR), Part(1, 1, VECTOR))
            scores = TensorType((rows, padded), dtype, Layout(parts, ((0, 0), (0, 0))))
        found = {pair.score: scores}
        in_key_blocks = self.blocks.keys is not None
        for name, kind in stages.per_row(in_key_blocks).items():
            found[name] = TensorType((rows,), kind)
        if in_key_blocks:
            columns = tuple(a.extent for a in pair.columns)
            found[stages.total] = TensorType((rows, *columns), pair.results[0].body.dtype)
        return found

    def rows(self, number: Index) -> list[Stmt]:
        """All keys for the rows of block ``number``."""
        size, extent = self.blocks.rows, self.blocks.stages.pair.row.extent
        whole = floordiv(extent, size)
        rest = Block(whole * size, extent - whole * size)
        block = Block(number * size, size)
        if rest.rows == 0:
            return self._keys(block)
        if whole == 0:
            return self._keys(rest)
        inside = Predicate((Condition(number - whole, "<", 0),))
        return [If(inside, tuple(self._keys(block)), tuple(self._keys(rest)))]

    def _keys(self, block: Block) -> list[Stmt]:
        stages, size = self.blocks.stages, self.blocks.keys
        extent = stages.pair.key.extent
        if size is None:
            whole = replace(block, keys=extent)
            return self._emit(stages.at_once(whole), whole)
        number = floordiv(extent, size)
        seen = self._seen(block)
        rest = replace(block, key=number * size, keys=extent - number * size)
        counter = self.names.fresh("keys")
        inner = replace(self, dims={**self.dims, counter: loop_range(number)})
        part = replace(block, key=Sym(counter) * size, keys=size)
        statements = self._emit(stages.start(block), block)
        if number != 0:
            count = number if seen is None else minimum(number, ceildiv(seen, size))
            body = inner._emit(stages.key_block(part), part)
            statements.append(For(counter, 0, count, tuple(body)))
        if rest.keys != 0:
            conditions = [] if isinstance(rest.keys, int) else [Condition(rest.keys, ">", 0)]
            conditions += [] if seen is None else [Condition(seen - rest.key, ">", 0)]
            last = tuple(self._emit(stages.key_block(rest), rest))
            statements += [If(Predicate(tuple(conditions)), last)] if conditions else last
        return [*statements, *self._emit(stages.end(block), block)]

    def _seen(self, block: Block) -> Index | None:
        """Number of keys unmasked in the last row of ``block``; None without a mask to the first
        keys."""
        pair, weights = self.blocks.stages.pair, self.blocks.stages.weights
        seen = None if weights is None else seen_keys(pair, weights)
        if seen is None:
            return None
        return maximum(substitute(seen, {pair.row.name: block.row + block.rows - 1}), 0)

    def _emit(self, groups: Sequence[StageGroup], block: Block) -> list[Stmt]:
        return [s for group in groups for s in self._group(group, block)]

    def _product(self, group: StageGroup, block: Block) -> Product | None:
        """Which product of a whole block ``group`` is, or of the remainder if there are no whole
        blocks."""
        if not (group.scores or group.total):
            return None
        rows, keys = self.blocks.stages.pair.row.extent, self.blocks.stages.pair.key.extent
        whole = block.rows == self.blocks.rows or floordiv(rows, self.blocks.rows) == 0
        size = self.blocks.keys
        whole &= size is None or block.keys == size or floordiv(keys, size) == 0
        return None if not whole else "scores" if group.scores else "total"

    def _group(self, group: StageGroup, block: Block) -> list[Stmt]:
        pair = self.blocks.stages.pair
        local = self._local(block.keys if group.scores else None)
        types = {**self.types, **local}
        if not group.rows:
            piece = Piece(group.stages, group.stored, types, self.dims, frozenset())
            made = self._product(group, block)
            if made is None:
                plan = self.planned.steps.tiled(piece, self.machine)
            else:
                plan, _ = piece.plan(self.machine, self.blocks.tiles(made))
                self.planned.products[made] = piece, plan.schedule
            return emit_tiled(plan, self.names, 1, None, frozenset(local))
        row, key = replace(pair.row, extent=block.rows), replace(pair.key, extent=block.keys)
        domain = ReductionDomain((row,), (key,), group.stages)
        args = domain, group.stored, types, self.dims, self.machine
        rows = self.planned.steps.rows(partial(plan_rows, *args))
        return emit_rows(replace(rows, padded=frozenset((pair.score,))), self.names, 1)
