"""Attention by wgmma, from tiles that TMA copies as boxes.

grid b, i; thread warp of 128 (64 rows each), lane
  one thread: queries and the first blocks of keys and of values are copied, a phase each
  scores = queries * keys of the first block, softmax
  for each further block of keys
    warpgroups in turns: scores = queries * keys, asynchronously, and
      totals += exponentials * values of the previous block, asynchronously
    one thread of the last warpgroup: further keys and values are copied over earlier ones
    wait for the scores, whose softmax is computed while the totals are
    wait for the totals
    totals * rescaling factor, exponentials = those of the scores
  totals += exponentials * values of the last block
  results within range: totals, and their epilogue

Scores, exponentials and totals stay in registers: a thread has two rows of them, shared with three
neighbours.  The softmax of scores is their epilogue, their running maximum, exponentials relative
to it and the sums of these (Shah et al., "FlashAttention-3", 2024, algorithm 2).  A warpgroup
computes it while the tensor cores multiply for another one ("pingpong scheduling" there); if it is
alone, or there is no memory for a third block, all warps synchronise before a block is overwritten.
Results in 16 bits use exponentials of as many, others exponentials as the sum of two such numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.argument import Argument
from modelcc.ir.index import (
    Bounds,
    Index,
    Range,
    Sym,
    ceildiv,
    floordiv,
    loop_range,
    maximum,
    minimum,
    mod,
)
from modelcc.ir.loop import (
    Alloc,
    Assign,
    Barrier,
    Buffer,
    Const,
    Convert,
    Expr,
    For,
    Function,
    Intrinsic,
    Load,
    MulAdd,
    Predicate,
    RoutineCall,
    ScalarCall,
    Select,
    Splat,
    Stmt,
    Store,
    TakeTurns,
    Var,
)
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Condition, Guard, Number, Scalar
from modelcc.ir.tiles import ExpectBytes, WaitArrival, WaitRoutines
from modelcc.ir.types import BOOL, F32, I64
from modelcc.passes.tensor.online_softmax import seen_keys
from modelcc.schedule.group_schedule import TensorAttention
from modelcc.schedule.nest import Nest
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.attention_grid import grid_of
from modelcc.targets.gpu.attention.attention_parts import (
    LOG2_E,
    AttentionParts,
    find_attention,
    verify_halves,
    within,
)
from modelcc.targets.gpu.attention.attention_results import AttentionResults
from modelcc.targets.gpu.attention.score_scale import overflows, unscaled
from modelcc.targets.gpu.evaluation import (
    Evaluation,
    GroupKernel,
    Launching,
    only_where,
)
from modelcc.targets.gpu.products.box_operand import BoxOperand, box_operand
from modelcc.targets.gpu.products.fragment_elements import BOTH, SIDE, each_side, own, pair, put
from modelcc.targets.gpu.rows.team import combine_two, exchanged
from modelcc.targets.isa.nvidia_fast import EXP2
from modelcc.targets.isa.nvidia_wgmma import own_column, own_row
from modelcc.targets.isa.tile_products import (
    COLUMNS,
    ROWS,
    clear_sums,
    depth,
    multiply_rows,
    multiply_tiles,
    sums_size,
)

WARPS = 128
"""Threads of a warpgroup."""

ALIGNMENT = 1024
"""Alignment of tiles, in bytes."""

ROW_THREADS = 4
"""Threads that hold elements of a row."""

SHARED_BYTES = 227 * 1024
"""Shared memory of a group, on machines with wgmma."""


def lower_tile_attention(kernel: GroupKernel, schedule: TensorAttention) -> Function:
    """The function of a kernel; :class:`ScheduleError` if it is no softmax of products in f16 or
    bf16 of inputs that can be copied as boxes."""
    if kernel.checks:
        raise ScheduleError("indices of blocks are known to be in their bounds")
    return TileAttention(kernel, schedule, find_attention(kernel)).function()


class TileAttention:
    """Emits the work of a group's threads; :class:`ScheduleError` if operands are no boxes, or rows
    and keys do not fit wgmma."""

    def __init__(self, kernel: GroupKernel, s: TensorAttention, parts: AttentionParts) -> None:
        verify_halves(parts)
        self._kernel, self._s, self._parts = kernel, s, parts
        self._dtype = parts.first.left.value.dtype
        self._part = depth(self._dtype)
        self._depth = -(-parts.depth // self._part) * self._part
        self._width = -(-parts.width // COLUMNS[0]) * COLUMNS[0]
        if s.rows % ROWS or not s.rows or not {s.keys, self._width} <= {*COLUMNS}:
            raise ScheduleError(f"four warps have {ROWS} rows, blocks {COLUMNS} keys and columns")
        assert parts.shifted is not None
        self._scored, scale = unscaled(parts.scores, parts.shifted)
        """Scores divided by the scale that the exponentials apply."""
        self._factor = LOG2_E * scale
        self._apart = overflows(self._scored, kernel.kernel.inputs, self._factor)
        self._unmasked = parts.unmasked and unscaled(parts.unmasked, parts.shifted)[0]
        self._known = isinstance(parts.pair.key.extent, int)
        """Whether the number of keys is a constant; otherwise there may be none."""
        first, second, fresh = parts.first, parts.second, kernel.names.fresh
        self._queries = self._boxes(
            box_operand(kernel, first.left, first.rows, first.terms, first.batch)
        )
        self._keys = self._boxes(
            box_operand(kernel, first.right, first.columns, first.terms, first.batch)
        )
        self._values = self._boxes(
            box_operand(kernel, second.right, second.columns, second.terms, first.batch)
        )
        gb, gi, w, lane = fresh("gb"), fresh("gi"), fresh("w"), fresh("t")
        rows = ceildiv(parts.pair.row.extent, s.rows)
        causal = seen_keys(parts.pair, parts.weights) is not None
        grid, number = grid_of(kernel, parts, (gb, gi), rows, causal)
        self._launch = Launching(grid, ((w, s.rows // ROWS), (lane, WARPS)), kernel.dims)
        self._lane, self._warp = Sym(lane), Sym(w)
        order = rows - 1 - Sym(gi) if causal else Sym(gi)
        self._start = order * s.rows
        self._outer = Evaluation(kernel.names)
        self._batch = self._outer.place(first.batch, number) if first.batch else {}
        sides = s.rows * self._depth, s.keys * self._depth, s.keys * self._width
        most = (sides[0] + 3 * sum(sides[1:])) * self._dtype.bytes + ALIGNMENT
        self._in_turns = s.rows > ROWS and most <= SHARED_BYTES
        blocks = ceildiv(parts.pair.key.extent, s.keys)
        most_blocks = max(blocks, 1) if isinstance(blocks, int) else 3
        self._slots = min(3 if self._in_turns else 2, most_blocks)
        sizes = (sides[0], *(self._slots * side for side in sides[1:]))
        self._tiles = [
            Buffer(fresh(stem), self._dtype, size, "tile", ALIGNMENT)
            for stem, size in zip(("queries", "keys", "values"), sizes, strict=True)
        ]
        self._arrivals = [
            Buffer(fresh("there"), I64, n, "arrivals") for n in (1, self._slots, self._slots)
        ]
        self._scores = Buffer(fresh("fs"), F32, sums_size(s.keys), "warp")
        self._totals = Buffer(fresh("fo"), F32, sums_size(self._width), "warp")
        whole = parts.results[-1].body.dtype.bits > 16
        self._powers = [
            Buffer(fresh("fp"), self._dtype, sums_size(s.keys), "warp") for _ in range(1 + whole)
        ]
        self._seen: list[Var] = []
        self._sums: list[list[Var]] = []

    def _boxes(self, found: BoxOperand | None) -> BoxOperand:
        if found is None:
            raise ScheduleError("queries, keys and values are boxes, with rows on boundaries")
        return found

    @property
    def shared(self) -> tuple[Buffer, ...]:
        """Shared memory of a group."""
        return (*self._tiles, *self._arrivals)

    @property
    def registers(self) -> int:
        """Registers a thread is expected to take: scores, exponentials, totals, and what ptxas
        takes besides them, for addresses and for masks."""
        powers = len(self._powers) * self._s.keys // 4
        fragments = self._s.keys // 2 + powers + self._width // 2
        if not self._is_masked:
            return fragments + 46
        few = not self._reads_masks and fragments <= 128
        return fragments + (48 if few else 80)

    @property
    def _is_masked(self) -> bool:
        """Whether scores depend on their position."""
        return self._parts.unmasked is not None or self._reads_masks

    @property
    def _reads_masks(self) -> bool:
        """Whether scores read more inputs than queries and keys."""
        later = (read.tensor for nest in self._parts.scores[1:] for read in reads(nest.body))
        inputs = self._kernel.kernel.inputs
        return any(name in inputs for name in later)

    def function(self) -> Function:
        """Grid, threads, and their statements."""
        outer, ranges = self._outer, self._launch.ranges
        fragments = (self._scores, self._totals, *self._powers)
        outer.statements += [Alloc(b) for b in fragments]
        outer.statements.append(self._clear(self._totals, self._width))
        blocks = self._parts.blocks(self._batch, self._start, self._s.rows, self._s.keys)
        count = outer.bind("blocks", maximum(blocks, 1))
        extent, keys = self._parts.pair.key.extent, self._s.keys
        ranges = {**ranges, **_at_most(count, ceildiv(extent, keys))}
        self._begin_first(count)
        low, zero = Const(float("-inf"), F32), Const(0.0, F32)
        self._seen = [outer.register("seen", low) for _ in BOTH]
        self._sums = [[outer.register("sum", zero) for _ in BOTH] for _ in BOTH]
        outer.statements.append(WaitArrival(self._arrivals[0].name, 0, 0))
        outer.statements += [self._there(1, 0), *self._score(0), WaitRoutines(0)]
        scores = self._scored
        changes = self._weigh(outer, 0, ranges, scores)
        outer.statements.append(self._there(2, 0))
        if not self._in_turns:
            outer.statements.append(Barrier())
            outer.statements += self._by_one(self._further(1, 2, count))
        outer.statements += self._turn(changes)
        first: Index = 1
        if self._unmasked is not None:
            seen = self._parts.open_blocks(self._batch, self._start, self._s.keys)
            first = outer.bind("open", maximum(minimum(seen, count), 1))
            ranges = {**ranges, **_at_most(first, maximum(floordiv(extent, keys), 1))}
            self._blocks(1, first, count, ranges, self._unmasked)
        self._blocks(first, count, count, ranges, scores)
        outer.statements += [*self._add(count - 1), WaitRoutines(0)]
        wholes = [
            exchanged(outer, "sum", combine_two("sum", sums), ROW_THREADS) for sums in self._sums
        ]
        halves = len(self._powers) == 1
        results = AttentionResults(
            self._kernel.names, self._parts, self._batch, self._totals, self._lane, halves
        )
        scale = Const(self._factor / LOG2_E, F32)
        tops = [ScalarCall("mul", (seen, scale), F32) for seen in self._seen]
        results.store(outer, [self._row(row) for row in BOTH], wholes, tops)
        return self._kernel.function(
            self._launch.around([Alloc(b) for b in self.shared], outer.statements)
        )

    def _blocks(
        self, first: Index, end: Index, count: Index, ranges: Bounds, scores: Sequence[Nest]
    ) -> None:
        """The loop over blocks of keys, of ``count`` in all."""
        inner, block = self._outer.nested(), Sym(self._kernel.names.fresh("kb"))
        ranges = {**ranges, block.name: Range(first, end - 1)}
        scoring, adding = self._score(block), self._add(block - 1)
        inner.statements.append(self._there(1, block))
        if self._in_turns:
            copies = [s for n in (1, 2) for s in self._further(n, block + 3 - n, count)]
            inner.statements.append(TakeTurns(tuple(scoring), tuple(copies), tuple(adding)))
        else:
            inner.statements += [*scoring, *adding]
        inner.statements.append(WaitRoutines(len(adding)))
        changes = self._weigh(inner, block, ranges, scores)
        # If threads may wait in a loop, ptxas does not move exponentials below the totals.
        inner.statements += [self._there(2, block), WaitRoutines(0)]
        if not self._in_turns:
            inner.statements.append(Barrier())
            copies = [s for n in (1, 2) for s in self._further(n, block + 3 - n, count)]
            inner.statements += self._by_one(copies)
        inner.statements += self._turn(changes)
        body = tuple(inner.statements)
        self._outer.statements.append(For(block.name, first, end, body))

    # --- tiles

    def _by_one(self, body: Sequence[Stmt], *conditions: Condition) -> list[Stmt]:
        """Statements that one thread executes for all."""
        thread = self._warp * WARPS + self._lane
        return only_where((Condition(thread, "==", 0), *conditions), body)

    def _begin_first(self, count: Index) -> None:
        """Starts the copies of queries and of the first blocks of keys and values."""
        copies = [s for which in range(3) for s in self._begin(which, 0)]
        copies += [s for which in (1, 2) for s in self._further(which, 1, count)]
        copies += self._further(1, 2, count) if self._in_turns else ()
        self._outer.statements += self._by_one(copies)

    def _further(self, which: int, block: Index, count: Index) -> list[Stmt]:
        """Starts the copy of a block of keys or of values, if there is such a block."""
        return only_where((Condition(block, "<", count),), self._begin(which, block))

    def _begin(self, which: int, block: Index) -> list[Stmt]:
        """Starts the copy of a block of queries, of keys or of values to a buffer."""
        tile, s, part = self._tiles[which], self._s, self._part
        assert isinstance(tile.size, int)
        slot: Index = mod(block, self._slots) if which else 0
        size = tile.size // self._slots if which else tile.size
        arrivals = self._arrivals[which].name, slot
        result: list[Stmt] = [ExpectBytes(*arrivals, size * self._dtype.bytes)]
        operand = (self._queries, self._keys, self._values)[which]
        along = (s.rows, s.keys, self._width)[which]
        for number in range(size // (along * part)):
            first = (
                (self._start, number * part),
                (block * s.keys, number * part),
                (0, block * s.keys + number * part),
            )[which]
            to = slot * size + number * along * part
            result += operand.copies(tile.name, to, first, along, part, self._batch, arrivals)
        return result

    # --- products

    def _clear(self, fragment: Buffer, columns: int) -> Stmt:
        return RoutineCall(clear_sums(columns), (Argument(fragment.name, 0),))

    def _score(self, block: Index) -> list[Stmt]:
        """Queries times a block of keys."""
        s, slot = self._s, mod(block, self._slots)
        queries, keys = self._tiles[0].name, self._tiles[1].name
        turned = self._queries.transposed, self._keys.transposed
        routine = multiply_tiles(self._dtype, s.keys, *turned)
        result: list[Stmt] = [self._clear(self._scores, s.keys)]
        for term in range(0, self._depth, self._part):
            own = term * s.rows + self._warp * (ROWS * self._part)
            key = slot * (s.keys * self._depth) + term * s.keys
            places = (self._scores.name, 0), (queries, own), (keys, key)
            arguments = tuple(Argument(*place) for place in places)
            result.append(RoutineCall(routine, arguments, beside=True))
        return result

    def _add(self, block: Index) -> list[Stmt]:
        """Exponentials times a block of values."""
        s, slot, part = self._s, mod(block, self._slots), self._part
        routine = multiply_rows(self._dtype, self._width, self._values.transposed)
        values = self._tiles[2].name
        result: list[Stmt] = []
        for key in range(0, s.keys, part):
            value = (slot * s.keys + key) * self._width
            for powers in self._powers:
                places = (self._totals.name, 0), (powers.name, key * ROWS), (values, value)
                arguments = tuple(Argument(*place) for place in places)
                result.append(RoutineCall(routine, arguments, beside=True))
        return result

    def _there(self, which: int, block: Index) -> Stmt:
        """Waits for a block of keys, or of values."""
        slot, phase = mod(block, self._slots), floordiv(block, self._slots)
        return WaitArrival(self._arrivals[which].name, slot, phase)

    # --- a thread's own elements

    def _row(self, row: int) -> Index:
        return self._start + self._warp * ROWS + own_row(self._lane) + SIDE * row

    # --- weights

    def _weigh(
        self, at: Evaluation, block: Index, ranges: Bounds, scores: Sequence[Nest]
    ) -> list[Expr]:
        """Scores become exponentials relative to the running maximum; the rescaling factors."""
        low = Const(float("-inf"), F32)
        tops = [
            [at.register("top", low if column else self._seen[row]) for column in BOTH]
            for row in BOTH
        ]
        at.statements.append(self._shift(at, block, ranges, scores, tops))
        changes: list[Expr] = []
        bases: list[Expr] = []
        for row in BOTH:
            top = exchanged(at, "max", combine_two("max", tops[row]), ROW_THREADS)
            nothing = ScalarCall("eq", (top, low), BOOL)
            base: Expr = Select(nothing, Const(0.0, F32), top)
            if not self._apart:
                base = ScalarCall("mul", (base, Const(-self._factor, F32)), F32)
            bases.append(at.named("base", base))
            changes.append(at.named("change", self._power(self._seen[row], bases[row])))
            at.statements.append(Assign(self._seen[row].name, top))
            for total in self._sums[row]:
                shrunk = ScalarCall("mul", (total, changes[row]), F32)
                at.statements.append(Assign(total.name, shrunk))
        at.statements.append(self._raise(at, bases))
        return changes

    def _power(self, value: Expr, base: Expr) -> Expr:
        """e^(scale * (value - maximum)), where ``base`` is -log2(e) * scale * maximum, or the
        maximum if that product may be infinite."""
        factor = Const(self._factor, F32)
        if not self._apart:
            return Intrinsic(EXP2, (MulAdd(value, factor, base),))
        difference = ScalarCall("sub", (value, base), F32)
        return Intrinsic(EXP2, (ScalarCall("mul", (difference, factor), F32),))

    def _raise(self, at: Evaluation, bases: Sequence[Expr]) -> Stmt:
        inner, (side, every) = at.nested(), each_side(self._kernel.names, self._s.keys)
        for row in BOTH:
            for column in BOTH:
                place = own(self._lane, side, row, column)
                score = Load(self._scores.name, place, F32)
                power = inner.named("power", self._power(score, bases[row]))
                total = self._sums[row][column]
                both = combine_two("sum", (total, power))
                inner.statements += [
                    Store(self._scores.name, place, power), Assign(total.name, both)
                ]  # fmt: skip
        return every(inner.statements)

    def _shift(
        self,
        at: Evaluation,
        block: Index,
        ranges: Bounds,
        scores: Sequence[Nest],
        tops: Sequence[Sequence[Var]],
    ) -> Stmt:
        """The exponents, in place of scores, and their maximum."""
        parts, pair = self._parts, self._parts.pair
        inner, (side, every) = at.nested(), each_side(self._kernel.names, self._s.keys)
        ranges = {**ranges, side.name: loop_range(self._s.keys // SIDE)}
        rows = [within(at, self._row(row), pair.row, ranges)[0] for row in BOTH]
        first, *rest = scores
        assert parts.shifted is not None
        low = Const(float("-inf"), F32)
        for column in BOTH:
            key = block * self._s.keys + side * SIDE + own_column(self._lane) + column
            number, there = self._key(inner, key, ranges)
            for row in BOTH:
                point = {**self._batch, pair.row.name: rows[row], pair.key.name: number}
                place = own(self._lane, side, row, column)
                made: dict[str, Expr] = {first.output: Load(self._scores.name, place, F32)}
                for nest in rest:
                    body = self._known_there(nest.body)
                    made[nest.output] = inner.named("v", inner.value(body, point, made))
                value = inner.value(parts.shifted, point, made)
                value = Select(Predicate(there), value, low) if there else value
                value, top = inner.named("x", value), tops[row][column]
                inner.statements.append(Assign(top.name, combine_two("max", (top, value))))
                inner.statements.append(Store(self._scores.name, place, value))
        return every(inner.statements)

    def _key(
        self, at: Evaluation, key: Index, ranges: Bounds
    ) -> tuple[Index, tuple[Condition, ...]]:
        """``key`` or the last one, or itself if there may be none; whether it exists."""
        axis = self._parts.pair.key
        if self._known:
            return within(at, key, axis, ranges)
        number = at.bind(axis.name, key)
        return number, (Condition(number, "<", axis.extent),)

    def _known_there(self, body: Scalar) -> Scalar:
        """``body`` of a score, guarded so that it reads nothing at keys that do not exist."""
        inputs, axis = self._kernel.kernel.inputs, self._parts.pair.key
        if self._known or not any(read.tensor in inputs for read in reads(body)):
            return body
        there = (Condition(Sym(axis.name) - axis.extent, "<", 0),)
        return Guard(there, body, Number(0.0, body.dtype), body.dtype)

    def _turn(self, changes: Sequence[Expr]) -> list[Stmt]:
        """Totals are rescaled, and exponentials become operands."""
        side, every_total = each_side(self._kernel.names, self._width)
        scaled = [
            put(self._totals, self._lane, side, row, ScalarCall(
                "mul", (pair(self._totals, self._lane, side, row), Splat(changes[row], 2)), F32, 2
            ))
            for row in BOTH
        ]  # fmt: skip
        inner, (key, every_key) = self._outer.nested(), each_side(self._kernel.names, self._s.keys)
        for row in BOTH:
            rest = pair(self._scores, self._lane, key, row)
            for number, powers in enumerate(self._powers):
                part = inner.named("part", Convert(rest, self._dtype))
                inner.statements.append(put(powers, self._lane, key, row, part))
                if number + 1 < len(self._powers):
                    rest = ScalarCall("sub", (rest, Convert(part, F32)), F32, 2)
        return [every_total(scaled), every_key(inner.statements)]


def _at_most(count: Index, most: Index) -> Bounds:
    """The range of a named number: at least 1, and at most ``most``."""
    return {count.name: Range(1, most)} if isinstance(count, Sym) else {}
