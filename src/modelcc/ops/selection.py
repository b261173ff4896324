"""The k best elements of a row: those with the leading bits of the k-th best or better, sorted."""

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
    predicate,
)
from modelcc.ir.compute import Operand
from modelcc.ir.index import Index
from modelcc.ir.loop import Buffer, Expr, Var
from modelcc.ir.types import I64
from modelcc.ops.radix_sort import KeyedPlaces, clear, radix_sort

LEADING = 11
"""Bits by which elements are told from those that are too bad."""


@dataclass(frozen=True)
class Row:
    """``extent`` elements of x, ``step`` apart, and where the ``k`` best and their indices go,
    ``stride`` apart."""

    x: Operand | Buffer
    values: Operand
    indices: Operand
    source: Index
    target: Index
    step: Index
    stride: Index
    extent: Index
    k: Index
    largest: bool

    def element(self, at: AlgorithmBuilder, place: Index, lanes: int = 1) -> Expr:
        """The element at ``place``, or as many as ``lanes`` from there on."""
        return at.load(self.x, self.source + place * self.step, lanes, self.step)

    def write(self, at: AlgorithmBuilder, rank: Index, value: Expr, origin: Expr) -> None:
        """Set the result at ``rank``."""
        offset = self.target + rank * self.stride
        at.store(self.values, offset, value)
        at.store(self.indices, offset, origin)


def select_by_key(at: AlgorithmBuilder, row: Row, pairs: KeyedPlaces) -> None:
    """Sort the elements whose leading bits are those of the k-th best or better ones: O(n).

    All are sorted if more than two thirds are wanted.
    """
    found = at.register(integer(0))
    most, all_of = 3 * row.k, 2 * row.extent
    if not isinstance(most, int) or not isinstance(all_of, int):
        with at.when(predicate(most, "<", all_of)):
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
