"""The few best elements of a row: those that beat a bound are listed, and the list is sorted.

The bound is the k-th best of one element of each of 2 k groups or more, the best there: k elements
at least are as good.  Few others are, unless the best lie side by side in few groups; a list that
is full is cut to its k best, of which the last is the next bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    add,
    call,
    convert,
    index_number,
    integer,
    number,
    predicate,
    reduce,
    splat,
)
from modelcc.ir.index import Index, minimum
from modelcc.ir.loop import Bitcast, Buffer, Expr, IndexOf, Select, Var
from modelcc.ir.types import I32, I64, U64, DType
from modelcc.ops.radix_sort import KeyOrder
from modelcc.ops.selection import Row
from modelcc.ops.sorting import below
from modelcc.ops.top_one import select_best

MOST = 128
"""Results up to which this is faster than sorting by leading bits."""
SCANNED = 2
"""Vectors of elements that are compared with the bound at once."""
RANKED = 2
"""Vectors of elements that meet each other at once."""
SAMPLED = 256
"""Elements of a group, at most, that its best is found among."""
LONG = 1 << 12
"""Elements from which the one best is found sooner by the bound: in one pass over memory."""


@dataclass(frozen=True)
class Shortlist:
    """Room for elements and their places in a row, twice, and for their keys and ranks."""

    order: KeyOrder
    values: Buffer
    places: Buffer
    keys: Buffer
    ranks: Buffer
    room: int
    wide: int
    start: Index = 0

    def at_block(self, block: Index) -> Shortlist:
        """That of one of several blocks, each with memory of its own."""
        return replace(self, start=block * 2 * self.room)

    def read(self, at: AlgorithmBuilder, rank: Index) -> tuple[Expr, Expr]:
        """The element at ``rank`` once :meth:`sort` is done, and its place."""
        slot = self.start + self.room + rank
        return at.load(self.values, slot), at.load(self.places, slot)

    def put(self, at: AlgorithmBuilder, slot: Index, value: Expr, place: Expr) -> None:
        """List an element, or neighbouring ones."""
        at.store(self.values, self.start + slot, value)
        at.store(self.places, self.start + slot, place)

    def sort(self, at: AlgorithmBuilder, count: Index) -> None:
        """Copy the first ``count`` elements in order, best first, equal ones as they are.

        An element's rank is how many are before it: no branch that nobody can foretell.
        """
        self.rank(at, count)
        with at.loop(0, count) as i:
            slot = self.start + self.room + at.index(at.load(self.ranks, self.start + i))
            at.store(self.values, slot, at.load(self.values, self.start + i))
            at.store(self.places, slot, at.load(self.places, self.start + i))

    def rank(self, at: AlgorithmBuilder, count: Index) -> None:
        """Find the rank of each of the first ``count`` elements."""
        blocks = (count + self.wide - 1) // self.wide
        with at.loop(0, blocks) as block:
            first = self.start + block * self.wide
            at.store(self.keys, first, self._key(at, at.load(self.values, first, self.wide)))
        with at.loop(0, blocks) as block:
            self._rank_block(at, block * self.wide, count)

    def find(self, at: AlgorithmBuilder, rank: Index, blocks: Index) -> Expr:
        """The element with this rank among whole blocks."""
        slot = at.register(number(0, self.ranks.dtype, self.wide))
        with at.loop(0, blocks) as block:
            own = at.load(self.ranks, self.start + block * self.wide, self.wide)
            found = call("eq", own, splat(index_number(rank, own.dtype), self.wide))
            place = IndexOf(block * self.wide, own.dtype, self.wide, 1)
            at.assign(slot, Select(found, place, slot))
        return at.load(self.values, self.start + at.index(reduce("max", slot)))

    def _key(self, at: AlgorithmBuilder, value: Expr) -> Expr:
        """Keys with a sign: there is an instruction that compares these."""
        key = self.order.of(at, value)
        middle = number(1 << (key.dtype.bits - 1), key.dtype, key.lanes)
        return Bitcast(call("xor", key, middle), self.ranks.dtype)

    def _rank_block(self, at: AlgorithmBuilder, first: Index, count: Index) -> None:
        """Ranks of a block of elements, each of which meets all."""
        own = at.let(at.load(self.keys, self.start + first, self.wide))
        numbers = IndexOf(first, own.dtype, self.wide, 1)
        rank = at.register(number(0, own.dtype, self.wide))
        last = minimum(first + self.wide, count)
        for begin, end in ((0, first), (first, last), (last, count)):
            with at.loop(begin, end) as j:
                other = splat(at.load(self.keys, self.start + j), self.wide)
                before = call("le" if begin == 0 else "lt", other, own)
                if end is last:
                    earlier = call("gt", numbers, splat(index_number(j, own.dtype), self.wide))
                    before = call("or", before, call("and", call("eq", other, own), earlier))
                one, none = (number(n, own.dtype, self.wide) for n in (1, 0))
                at.assign(rank, call("add", rank, Select(before, one, none)))
        at.store(self.ranks, self.start + first, rank)


def shortlist(
    at: AlgorithmBuilder, dtype: DType, largest: bool, extent: Index, blocks: Index
) -> Shortlist:
    """Scratch memory for ``blocks`` lists of the best of ``extent`` elements."""
    order = KeyOrder(dtype, descending=largest)
    signed = I64 if order.key == U64 else I32
    # What a list is cut beyond, a block and what is left of a row.
    room = 4 * MOST + 16 * at.lanes
    memory = (at.scratch(t, 2 * room * blocks) for t in (dtype, I64, signed, signed))
    short = isinstance(extent, int) and extent <= RANKED * at.lanes
    wide = at.lanes if short else at.capacity.joined(RANKED)
    return Shortlist(order, *memory, room=room, wide=wide)


def select_by_list(at: AlgorithmBuilder, row: Row, best: Shortlist) -> None:
    """The first ``MOST`` results at most: O(n + k * k), and O(n * k) if the best come last."""
    with at.when(call("and", predicate(row.k, "==", 1), predicate(row.extent, "<", LONG))):
        select_best(at, row)
    with at.otherwise():
        _select_several(at, row, best)


def _select_several(at: AlgorithmBuilder, row: Row, best: Shortlist) -> None:
    groups = (row.k + at.lanes - 1) // at.lanes * 2 * at.lanes
    long = predicate(2 * groups, "<=", row.extent)
    count = at.register(integer(0))
    with at.when(long):
        _Scan(at, row, best, count, _bound(at, row, best, groups)).all()
    with at.otherwise():
        for place, lanes in at.vectors(row.extent):
            best.put(at, place, row.element(at, place, lanes), IndexOf(place, I64, lanes, 1))
        at.assign(count, index_number(row.extent))
    best.sort(at, at.index(count))
    with at.loop(0, row.k) as rank:
        row.write(at, rank, *best.read(at, rank))


def _bound(at: AlgorithmBuilder, row: Row, best: Shortlist, groups: Index) -> Expr:
    """What the k-th best is not worse than: an element of each group stands for it.

    It is the group's best but where there is NaN.
    """
    with at.loop(0, groups // at.lanes) as block:
        chosen = at.register(row.element(at, block * at.lanes, at.lanes))
        with at.loop(1, minimum(row.extent // groups, SAMPLED)) as step:
            other = row.element(at, step * groups + block * at.lanes, at.lanes)
            at.assign(chosen, call("max" if row.largest else "min", chosen, other))
        at.store(best.values, best.start + block * at.lanes, chosen)
    best.rank(at, groups)
    return best.find(at, row.k - 1, groups // best.wide)


class _Scan:
    """One pass over a row, which lists what the bound does not keep out."""

    def __init__(
        self, at: AlgorithmBuilder, row: Row, best: Shortlist, count: Var, bound: Expr
    ) -> None:
        self.at, self.row, self.best, self.count = at, row, best, count
        self.bound, self.scanned = at.register(bound), at.capacity.joined(SCANNED)

    def all(self) -> None:
        """Every element: blocks none of whose elements is wanted are passed over as vectors.

        Equals of the bound are wanted until k elements are listed: what comes later loses.
        """
        at, row, worse = self.at, self.row, "lt" if self.row.largest else "gt"
        blocks = row.extent // self.scanned
        done, too_few = at.register(integer(0)), call("lt", self.count, index_number(row.k))
        more = call("lt", done, index_number(blocks))
        with at.while_(call("and", more, too_few)):
            block = at.index(done)
            at.assign(done, add(done, 1))
            with at.when(self._any_but(worse, block)):
                self._offer_block(block)
        with (
            at.loop(at.index(done), blocks) as block,
            at.when(self._any_but("le" if row.largest else "ge", block)),
        ):
            self._offer_block(block)
            with at.when(call("gt", self.count, index_number(4 * row.k + 4 * at.lanes))):
                self._cut()
        with at.loop(blocks * self.scanned, row.extent) as place:
            self._offer(place)

    def _any_but(self, comparison: str, block: Index) -> Expr:
        """Whether there is an element that is not so, compared with the bound, or NaN."""
        value = self.row.element(self.at, block * self.scanned, self.scanned)
        out = call(comparison, value, splat(self.bound, self.scanned))
        return reduce("or", call("not", out))

    def _offer_block(self, block: Index) -> None:
        with self.at.loop(block * self.scanned, (block + 1) * self.scanned) as place:
            self._offer(place)

    def _offer(self, place: Index) -> None:
        """Written in any case, and counted if wanted: no branch that nobody can foretell."""
        at, bound = self.at, self.bound
        value = at.let(self.row.element(at, place))
        self.best.put(at, at.index(self.count), value, index_number(place))
        few = call("lt", self.count, index_number(self.row.k))
        no_worse = call("and", few, call("not", self._beats(bound, value)))
        wanted = call("or", self._beats(value, bound), no_worse)
        at.assign(self.count, call("add", self.count, convert(wanted, I64)))

    def _beats(self, a: Expr, b: Expr) -> Expr:
        return below(b, a) if self.row.largest else below(a, b)

    def _cut(self) -> None:
        """Only the k best stay."""
        at, best, k = self.at, self.best, self.row.k
        best.sort(at, at.index(self.count))
        with at.loop(0, k) as rank:
            best.put(at, rank, *best.read(at, rank))
        at.assign(self.bound, best.read(at, k - 1)[0])
        at.assign(self.count, index_number(k))
