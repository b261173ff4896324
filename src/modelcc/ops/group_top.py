"""The k best elements of lines by groups of threads: pairs of a key and a place, sorted in the
memory that a group shares.

A bitonic network (Batcher, "Sorting networks and their applications", 1968) sorts as many pairs as
there is room for; the best ones stay, others take the places of the rest, and so on.  If one
element is wanted, only the least pair is looked for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.algorithm import AlgorithmBuilder, call, index_number, number, predicate
from modelcc.ir.capacity import GroupCapacity
from modelcc.ir.index import Index, Sym, ceildiv, maximum, minimum
from modelcc.ir.loop import Buffer, Expr, Var
from modelcc.ir.types import I32
from modelcc.ops.radix_sort import KeyOrder
from modelcc.ops.selection import Row

MOST_PAIRS = 2048

NOWHERE = 2**31 - 1


@dataclass(frozen=True)
class GroupPairs:
    """``room`` pairs of a line, a power of two, in the shared memory of a group from ``start`` on,
    and the ``thread`` of the ``threads`` of this line."""

    order: KeyOrder
    keys: Buffer
    places: Buffer
    room: int
    start: Index
    thread: Sym
    threads: int

    def put(self, at: AlgorithmBuilder, slot: Index, key: Expr, place: Expr) -> None:
        """Write the pair at ``slot``."""
        at.store(self.keys, self.start + slot, key)
        at.store(self.places, self.start + slot, place)

    def get(self, at: AlgorithmBuilder, slot: Index) -> tuple[Var, Var]:
        """The pair at ``slot``."""
        key, place = (at.let(at.load(b, self.start + slot)) for b in (self.keys, self.places))
        return key, place

    def fetched(self, at: AlgorithmBuilder, row: Row, place: Index) -> tuple[Var, Var]:
        """The pair of an element; one that comes after all others where there is none."""
        key = at.register(number((1 << self.order.key.bits) - 1, self.order.key))
        where = at.register(number(NOWHERE, I32))
        with at.when(predicate(place, "<", row.extent)):
            at.assign(key, self.order.of(at, row.element(at, place)))
            at.assign(where, index_number(place, I32))
        return key, where


def pairs_at_once(order: KeyOrder, k: Index, extent: Index, groups: GroupCapacity) -> int:
    """Pairs that a group sorts at once, a power of two; 0 if there is no room for the best."""
    most = groups.shared_bytes // (order.key.bytes + I32.bytes)
    most = 1 << min(most, MOST_PAIRS).bit_length() - 1
    whole = isinstance(extent, int) and extent <= most
    if not isinstance(k, int) or not (whole or 2 * k <= most):
        return 0
    needed = min(most, extent) if isinstance(extent, int) else most
    return max(2, 1 << (needed - 1).bit_length())


def select_in_groups(
    at: AlgorithmBuilder, row: Row, lines: Index, order: KeyOrder, groups: GroupCapacity
) -> None:
    """The results of ``lines``, of which ``row`` is the first."""
    room = pairs_at_once(order, row.k, row.extent, groups)
    threads = min(groups.threads, room // 2)
    beside = max(1, groups.threads // 4 // threads)  # lines, where they are short
    shared = (order.key, room * beside), (I32, room * beside)
    with at.groups(ceildiv(lines, beside), (beside, threads), *shared) as (
        group,
        own,
        (keys, places),
    ):
        line = group * beside + own[0]
        pairs = GroupPairs(order, keys, places, room, own[0] * room, own[1], threads)
        there = predicate(line, "<", lines)
        mine = line_of(row, minimum(line, lines - 1))
        if row.k == 1:
            _least(at, mine, pairs)
        else:
            _sorted(at, mine, pairs)
        with at.loop(0, ceildiv(row.k, threads)) as block:
            rank = block * threads + own[1]
            with at.when(call("and", there, predicate(rank, "<", row.k))):
                _, place = pairs.get(at, rank)
                where = at.index(place)
                mine.write(at, rank, mine.element(at, where), index_number(where))


def line_of(row: Row, number: Index) -> Row:
    """One of the lines that begin with ``row``; neighbours follow each other, then planes."""
    plane, beside = number // row.step, number % row.step
    source = plane * (row.extent * row.step) + beside
    return replace(row, source=source, target=plane * (row.k * row.stride) + beside)


def _least(at: AlgorithmBuilder, row: Row, pairs: GroupPairs) -> None:
    """The least pair at slot 0: of its own elements each thread finds it, then of two threads."""
    key, place = pairs.fetched(at, row, pairs.thread)
    with at.loop(1, ceildiv(row.extent, pairs.threads)) as block:
        other = pairs.fetched(at, row, block * pairs.threads + pairs.thread)
        with at.when(_is_later((key, place), other)):
            at.assign(key, other[0])
            at.assign(place, other[1])
    pairs.put(at, pairs.thread, key, place)
    at.barrier()
    count = pairs.threads
    while count > 1:
        count //= 2
        with at.when(predicate(pairs.thread, "<", count)):
            other = pairs.get(at, pairs.thread + count)
            with at.when(_is_later(pairs.get(at, pairs.thread), other)):
                pairs.put(at, pairs.thread, *other)
        at.barrier()


def _sorted(at: AlgorithmBuilder, row: Row, pairs: GroupPairs) -> None:
    """The least pairs at the first slots, in order."""
    with at.loop(0, pairs.room // pairs.threads) as block:
        slot = block * pairs.threads + pairs.thread
        pairs.put(at, slot, *pairs.fetched(at, row, slot))
    at.barrier()
    _sort(at, pairs)
    if isinstance(row.extent, int) and row.extent <= pairs.room:
        return
    assert isinstance(row.k, int)
    others = pairs.room - row.k
    with at.loop(0, ceildiv(maximum(row.extent - pairs.room, 0), others)) as turn:
        with at.loop(0, ceildiv(others, pairs.threads)) as block:
            nth = block * pairs.threads + pairs.thread
            with at.when(predicate(nth, "<", others)):
                place = pairs.room + turn * others + nth
                pairs.put(at, row.k + nth, *pairs.fetched(at, row, place))
        at.barrier()
        _sort(at, pairs)


def _sort(at: AlgorithmBuilder, pairs: GroupPairs) -> None:
    """All slots in ascending order: runs of 2, 4, 8 … pairs up and down by turns are merged."""
    one = number(1, I32)
    with at.loop(0, pairs.room.bit_length() - 1) as stage, at.loop(0, stage + 1) as step:
        shift = at.let(index_number(stage - step, I32))
        distance = at.let(call("shl", one, shift))
        with at.loop(0, pairs.room // 2 // pairs.threads) as block:
            own = at.let(index_number(block * pairs.threads + pairs.thread, I32))
            above = call("shl", call("shr", own, shift), call("add", shift, one))
            low = at.let(call("or", above, call("and", own, call("sub", distance, one))))
            ends = at.index(low), at.index(call("add", low, distance))
            first, second = (pairs.get(at, end) for end in ends)
            run = call("shr", low, index_number(stage + 1, I32))
            falling = call("eq", call("and", run, one), one)
            with at.when(call("ne", _is_later(first, second), falling)):
                pairs.put(at, ends[0], *second)
                pairs.put(at, ends[1], *first)
        at.barrier()


def _is_later(one: tuple[Expr, Expr], other: tuple[Expr, Expr]) -> Expr:
    """Whether a pair comes after another one."""
    (key, place), (key_2, place_2) = one, other
    same = call("and", call("eq", key, key_2), call("gt", place, place_2))
    return call("or", call("gt", key, key_2), same)
