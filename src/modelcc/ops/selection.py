"""The k best elements of a row, sorted: by a heap where k is small, else by leading bits."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.algorithm import (
    AlgorithmBuilder,
    add,
    call,
    convert,
    index_number,
    integer,
    number,
    test,
)
from modelcc.ir.compute import Operand
from modelcc.ir.index import Index
from modelcc.ir.loop import Expr, Fold, Splat, Var
from modelcc.ir.types import I64
from modelcc.ops.radix_sort import KeyedPlaces, clear, radix_sort
from modelcc.ops.sorting import below, sift_down

BLOCK = 16
"""Elements that are compared with the worst of the heap at once."""
LEADING = 11
"""Bits by which elements are told from those that are too bad."""


@dataclass(frozen=True)
class Row:
    """``extent`` elements of x, ``stride`` apart, and where the ``k`` best and their indices go."""

    x: Operand
    values: Operand
    indices: Operand
    source: Index
    target: Index
    stride: Index
    extent: Index
    k: Index
    largest: bool

    def element(self, at: AlgorithmBuilder, place: Index, lanes: int = 1) -> Expr:
        """The element at ``place``."""
        return at.load(self.x, self.source + place * self.stride, lanes)

    def read(self, at: AlgorithmBuilder, rank: Index) -> tuple[Expr, Expr]:
        """The result at ``rank``: its value and its index."""
        offset = self.target + rank * self.stride
        return at.load(self.values, offset), at.load(self.indices, offset)

    def write(self, at: AlgorithmBuilder, rank: Index, value: Expr, origin: Expr) -> None:
        """Set the result at ``rank``."""
        offset = self.target + rank * self.stride
        at.store(self.values, offset, value)
        at.store(self.indices, offset, origin)


def select_by_heap(at: AlgorithmBuilder, row: Row) -> None:
    """Keep the best so far as a heap, the worst of them in front: O(n + k log k log n) if shuffled.

    Blocks none of whose elements beats the worst are passed over as vectors.
    """
    heap, k = _Heap(at, row), row.k
    with at.when(test(k, ">", 0)):
        with at.loop(0, k) as j:
            heap.write(j, row.element(at, j), index_number(j))
        with at.loop(0, k // 2) as step:
            start = k // 2 - 1 - step
            value, origin = (at.register(e) for e in heap.read(start))
            sift_down(at, heap, index_number(start), k, value, origin)
        _offer_all(at, row, heap)
        with at.loop(0, k - 1) as step:
            last = k - 1 - step
            value, origin = (at.register(e) for e in heap.read(last))
            heap.write(last, *(at.let(e) for e in heap.read(0)))
            sift_down(at, heap, index_number(0), last, value, origin)


def _offer_all(at: AlgorithmBuilder, row: Row, heap: _Heap) -> None:
    """Every element behind the first k."""
    done = row.k
    if row.stride == 1:
        blocks = (row.extent - row.k) // BLOCK
        with at.loop(0, blocks) as block:
            first = row.k + block * BLOCK
            worst = Splat(at.let(heap.read(0)[0]), BLOCK)
            better = heap.beaten(worst, at.let(row.element(at, first, BLOCK)))
            with at.when(Fold("or", better)), at.loop(first, first + BLOCK) as j:
                heap.offer(j)
        done = done + blocks * BLOCK
    with at.loop(done, row.extent) as j:
        heap.offer(j)


@dataclass(frozen=True)
class _Heap:
    """The results of a row as a heap."""

    at: AlgorithmBuilder
    row: Row

    def read(self, place: Index) -> tuple[Expr, Expr]:
        return self.row.read(self.at, place)

    def write(self, place: Index, value: Expr, origin: Expr) -> None:
        self.row.write(self.at, place, value, origin)

    def worse(self, a: tuple[Expr, Expr], b: tuple[Expr, Expr]) -> Expr:
        no_better = call("not", self.beaten(b[0], a[0]))
        return call("or", self.beaten(a[0], b[0]), call("and", no_better, call("gt", a[1], b[1])))

    def beaten(self, a: Expr, b: Expr) -> Expr:
        """Whether value ``a`` is worse than ``b``."""
        return below(a, b) if self.row.largest else below(b, a)

    def offer(self, place: Index) -> None:
        """Take in the element at ``place``, which is behind all that are here."""
        at = self.at
        value = at.register(self.row.element(at, place))
        origin = at.register(index_number(place))
        # What comes later loses against its equals.
        with at.when(self.beaten(self.read(0)[0], value)):
            sift_down(at, self, index_number(0), self.row.k, value, origin)


def select_by_key(at: AlgorithmBuilder, row: Row, pairs: KeyedPlaces) -> None:
    """Sort the elements whose leading bits are those of the k-th best or better ones: O(n).

    All are sorted if more than two thirds are wanted.
    """
    found = at.register(integer(0))
    most, all_of = 3 * row.k, 2 * row.extent
    if not isinstance(most, int) or not isinstance(all_of, int):
        with at.when(test(most, "<", all_of)):
            _keep_best(at, row, pairs, found)
        with at.otherwise():
            _keep_all(at, row, pairs, found)
    elif most < all_of:
        _keep_best(at, row, pairs, found)
    else:
        _keep_all(at, row, pairs, found)
    begin = radix_sort(at, pairs, at.index(found))
    with at.loop(0, row.k) as rank:
        place = at.index(pairs.place(at, begin + rank))
        row.write(at, rank, row.element(at, place), index_number(place))


def _keep_all(at: AlgorithmBuilder, row: Row, pairs: KeyedPlaces, found: Var) -> None:
    with at.loop(0, row.extent) as i:
        pairs.put(at, i, pairs.order.of(at, row.element(at, i)), index_number(i))
    at.assign(found, index_number(row.extent))


def _keep_best(at: AlgorithmBuilder, row: Row, pairs: KeyedPlaces, found: Var) -> None:
    """The keys of all are in the second copy of ``pairs`` first."""
    shift = pairs.order.bits - min(LEADING, pairs.order.bits)
    clear(at, pairs, 1 << min(LEADING, pairs.order.bits))
    with at.loop(0, row.extent) as i:
        key = pairs.order.of(at, row.element(at, i))
        at.store(pairs.keys, pairs.start + row.extent + i, key)
        slot = pairs.counters + at.index(_leading(key, shift))
        at.store(pairs.counts, slot, add(at.load(pairs.counts, slot), 1))
    last = _last_bucket(at, row, pairs)
    with at.loop(0, row.extent) as i:
        key = at.let(pairs.key(at, row.extent + i))
        # Written in any case, and counted if wanted: no branch that nobody can foretell.
        pairs.put(at, at.index(found), key, index_number(i))
        wanted = call("le", _leading(key, shift), last)
        at.assign(found, call("add", found, convert(wanted, I64)))


def _last_bucket(at: AlgorithmBuilder, row: Row, pairs: KeyedPlaces) -> Expr:
    """The leading bits of the k-th best element."""
    bucket = at.register(integer(0))
    total = at.register(at.load(pairs.counts, pairs.counters))
    wanted = index_number(row.k)
    with at.while_(call("lt", total, wanted)):
        at.assign(bucket, add(bucket, 1))
        slot = pairs.counters + at.index(bucket)
        at.assign(total, call("add", total, at.load(pairs.counts, slot)))
    return bucket


def _leading(key: Expr, shift: int) -> Expr:
    return convert(call("shr", key, number(shift, key.dtype)) if shift else key, I64)


__all__ = ["Row", "select_by_heap", "select_by_key"]
