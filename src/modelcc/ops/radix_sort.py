"""Radix sort inside loop functions: numbers as unsigned keys, and places sorted by their keys.

Least significant digit first, eight bits at a time, each pass a stable counting sort (Knuth, The
Art of Computer Programming 3, 5.2.5).  All digits are counted at once; a pass whose digit is the
same for all keys is left out.  Few elements are sorted by insertion.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from modelcc.ir.algorithm import AlgorithmBuilder, add, call, convert, index_number, integer, number
from modelcc.ir.index import Index, Sym
from modelcc.ir.loop import Bitcast, Buffer, Expr, Select, Var
from modelcc.ir.types import BOOL, F32, F64, I32, I64, U32, U64, DType

DIGIT = 8
BUCKETS = 1 << DIGIT
COUNTERS = 64 // DIGIT * BUCKETS
FEW = 24
"""Elements up to which insertion is faster than counting."""


@dataclass(frozen=True)
class KeyOrder:
    """How numbers of ``dtype`` become unsigned keys that ascend in the order wanted.

    NaN is greater than all numbers, so it comes first in a ``descending`` order but for
    ``nan_last``.  -0.0 equals 0.0.
    """

    dtype: DType
    descending: bool = False
    nan_last: bool = False

    @property
    def bits(self) -> int:
        """Bits of a key that can differ."""
        return max(32 if self.dtype.is_float else DIGIT, self.dtype.bits)

    @property
    def key(self) -> DType:
        """Dtype of a key."""
        return U64 if self.bits > 32 else U32

    def of(self, at: AlgorithmBuilder, value: Expr) -> Expr:
        """The key of ``value``."""
        if not value.dtype.is_float:
            return at.let(self._directed(self._integer(value)))
        wide = F64 if value.dtype == F64 else F32
        wanted = at.let(convert(value, wide))
        zero = number(0.0, wide, wanted.lanes)
        plain = at.let(Select(call("eq", wanted, zero), zero, wanted))
        key = self._directed(self._float(at, plain))
        missing = self._limit(least=self.descending and not self.nan_last)
        missing = number(missing, self.key, wanted.lanes)
        return at.let(Select(call("eq", wanted, wanted), key, missing))

    def _integer(self, value: Expr) -> Expr:
        if value.dtype.kind == "uint":
            return convert(value, self.key)
        signed = I64 if self.key == U64 else I32
        middle = 1 << (self.bits - 1)
        wide = Bitcast(convert(value, signed), self.key)
        if self.bits < 32:
            return call("add", wide, number(middle, self.key, value.lanes))
        return call("xor", wide, number(middle, self.key, value.lanes))

    def _float(self, at: AlgorithmBuilder, value: Expr) -> Expr:
        """Bits that ascend with the number: negative ones complemented, the others behind them."""
        bits = at.let(Bitcast(value, self.key))
        middle = number(1 << (self.bits - 1), self.key, value.lanes)
        negative = call("lt", value, number(0.0, value.dtype, value.lanes))
        return Select(negative, call("not", bits), call("xor", bits, middle))

    def _directed(self, key: Expr) -> Expr:
        if not self.descending:
            return key
        return call("sub", number(self._limit(least=False), self.key, key.lanes), key)

    def _limit(self, least: bool) -> int:
        return 0 if least else (1 << self.bits) - 1


@dataclass(frozen=True)
class KeyedPlaces:
    """Keys, and the places of the elements that they belong to: room for two copies of each.

    ``start`` is where the first copy is, ``room`` how many pairs a copy may have, and
    ``counters`` where counters are.
    """

    order: KeyOrder
    keys: Buffer
    places: Buffer
    counts: Buffer
    room: Index
    start: Index = 0
    counters: Index = 0

    def put(self, at: AlgorithmBuilder, slot: Index, key: Expr, place: Expr) -> None:
        """Write the pair at ``slot``, of the first copy or (from ``room`` on) of the other."""
        at.store(self.keys, self.start + slot, key)
        at.store(self.places, self.start + slot, place)

    def key(self, at: AlgorithmBuilder, slot: Index) -> Expr:
        """The key at ``slot``."""
        return at.load(self.keys, self.start + slot)

    def place(self, at: AlgorithmBuilder, slot: Index) -> Expr:
        """The place at ``slot``."""
        return at.load(self.places, self.start + slot)

    def at_block(self, block: Index) -> KeyedPlaces:
        """Those of one of several blocks, each with memory of its own."""
        start, counters = block * 2 * self.room, block * COUNTERS
        return replace(self, start=start, counters=counters)


def keyed_places(
    at: AlgorithmBuilder, order: KeyOrder, room: Index, blocks: Index = 1
) -> KeyedPlaces:
    """Scratch memory for ``blocks`` times ``room`` pairs."""
    keys, places = at.scratch(order.key, 2 * room * blocks), at.scratch(I64, 2 * room * blocks)
    return KeyedPlaces(order, keys, places, at.scratch(I64, COUNTERS * blocks), room)


def radix_sort(at: AlgorithmBuilder, pairs: KeyedPlaces, count: Index) -> Sym:
    """Sort the first ``count`` pairs by key, those of equal keys as they are; where they begin."""
    source = at.register(integer(0))
    with at.when(call("le", index_number(count), integer(FEW))):
        _insert(at, pairs, count)
    with at.otherwise():
        _count(at, pairs, count)
        for digit in range(pairs.order.bits // DIGIT):
            _pass(at, pairs, count, digit, source)
    return at.index(source)


def _insert(at: AlgorithmBuilder, pairs: KeyedPlaces, count: Index) -> None:
    with at.loop(1, count) as i:
        key, place = at.let(pairs.key(at, i)), at.let(pairs.place(at, i))
        hole, going = at.register(index_number(i)), at.register(number(True, BOOL))
        with at.while_(going):
            at.assign(going, call("gt", hole, integer(0)))
            with at.when(going):
                before = at.index(call("sub", hole, integer(1)))
                other = at.let(pairs.key(at, before))
                at.assign(going, call("gt", other, key))
                with at.when(going):
                    pairs.put(at, before + 1, other, pairs.place(at, before))
                    at.assign(hole, index_number(before))
        pairs.put(at, at.index(hole), key, place)


def _count(at: AlgorithmBuilder, pairs: KeyedPlaces, count: Index) -> None:
    """How many keys have each value of each digit."""
    clear(at, pairs, pairs.order.bits // DIGIT * BUCKETS)
    with at.loop(0, count) as i:
        key = at.let(pairs.key(at, i))
        for digit in range(pairs.order.bits // DIGIT):
            slot = _counter(at, pairs, key, digit)
            at.store(pairs.counts, slot, add(at.load(pairs.counts, slot), 1))


def clear(at: AlgorithmBuilder, pairs: KeyedPlaces, counters: int) -> None:
    """Set the first ``counters`` of them to 0."""
    at.fill(pairs.counts, pairs.counters, counters, integer(0))


def _counter(at: AlgorithmBuilder, pairs: KeyedPlaces, key: Var, digit: int) -> Index:
    shifted = call("shr", key, number(digit * DIGIT, key.dtype)) if digit else key
    value = call("and", shifted, number(BUCKETS - 1, key.dtype))
    return pairs.counters + digit * BUCKETS + at.index(convert(value, I64))


def _pass(at: AlgorithmBuilder, pairs: KeyedPlaces, count: Index, digit: int, source: Var) -> None:
    """One counting sort from one copy to the other; none if all keys have the digit alike."""
    begin = at.index(source)
    first = _counter(at, pairs, at.let(pairs.key(at, begin)), digit)
    differ = call("ne", at.load(pairs.counts, first), index_number(count))
    with at.when(differ):
        target = pairs.room - begin
        total = at.register(index_number(target))
        with at.loop(0, BUCKETS) as bucket:
            slot = pairs.counters + digit * BUCKETS + bucket
            members = at.let(at.load(pairs.counts, slot))
            at.store(pairs.counts, slot, total)
            at.assign(total, add(total, members))
        with at.loop(0, count) as i:
            key = at.let(pairs.key(at, begin + i))
            slot = _counter(at, pairs, key, digit)
            to = at.index(at.load(pairs.counts, slot))
            pairs.put(at, to, key, pairs.place(at, begin + i))
            at.store(pairs.counts, slot, index_number(to + 1))
        at.assign(source, index_number(target))
