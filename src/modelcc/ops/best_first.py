"""Places in the order of their keys, of which maybe only the first are asked for.

Pairs of a key and a place are told apart by the leading bits of their keys.  Those with the least
are sorted first, about as many as will be asked for, then four times as many, and so on: O(n) if
few are asked for, and no more than twice a sort's work if all are.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from modelcc.ir.algorithm import AlgorithmBuilder, add, call, convert, index_number, integer, number
from modelcc.ir.index import Index, Sym
from modelcc.ir.loop import Buffer, Expr, Var
from modelcc.ir.types import BOOL, I64
from modelcc.ops.radix_sort import KeyedPlaces, KeyOrder, keyed_places, radix_sort

LEADING = 11
"""Bits by which pairs are told apart."""
GROUPS = 1 << LEADING
FEW = 256
"""Pairs up to which all are sorted at once."""
MORE = 4
"""Times as many are taken in the next turn; fewer than one in so many pairs are few."""


@dataclass(frozen=True)
class BestFirst:
    """``all`` pairs as they come, room to sort those whose turn it is, and sizes of groups."""

    all: KeyedPlaces
    turn: KeyedPlaces
    sizes: Buffer

    @contextmanager
    def each(self, at: AlgorithmBuilder, count: Index, likely: Expr, more: Expr) -> Generator[Sym]:
        """A loop over the places of the first ``count`` pairs, by ascending key, equal ones as
        they are, while ``more`` holds; ``likely`` so many will be asked for."""
        chunk, done = at.register(likely), at.register(integer(0))
        first, last = at.register(integer(0)), at.register(integer(0))
        few = call("gt", call("mul", likely, integer(MORE)), index_number(count))
        at_once = at.let(call("or", few, call("le", index_number(count), integer(FEW))))
        with at.when(call("not", at_once)):
            self._measure(at, count)
        with at.while_(call("and", more, call("lt", done, index_number(count)))):
            at.assign(first, last)
            with at.when(at_once):
                at.assign(last, integer(GROUPS))
            with at.otherwise():
                self._extend(at, last, chunk)
            found = self._take(at, count, first, last)
            begin = radix_sort(at, self.turn, found)
            with at.loop(0, found) as i, at.when(more):
                yield at.index(self.turn.place(at, begin + i))
            at.assign(done, add(done, index_number(found)))
            at.assign(chunk, call("mul", chunk, integer(MORE)))

    def _group(self, key: Expr) -> Expr:
        shift = self.all.order.bits - LEADING
        return convert(call("shr", key, number(shift, key.dtype)), I64)

    def _measure(self, at: AlgorithmBuilder, count: Index) -> None:
        """How many pairs each group has."""
        at.fill(self.sizes, 0, GROUPS, integer(0))
        with at.loop(0, count) as i:
            group = at.index(self._group(self.all.key(at, i)))
            at.store(self.sizes, group, add(at.load(self.sizes, group), 1))

    def _extend(self, at: AlgorithmBuilder, last: Var, chunk: Expr) -> None:
        """Move ``last`` on until there are ``chunk`` pairs before it, or no more groups."""
        total, going = at.register(integer(0)), at.register(number(True, BOOL))
        with at.while_(going):
            at.assign(total, add(total, at.load(self.sizes, at.index(last))))
            at.assign(last, add(last, 1))
            wanted = call("lt", total, chunk)
            at.assign(going, call("and", wanted, call("lt", last, integer(GROUPS))))

    def _take(self, at: AlgorithmBuilder, count: Index, first: Expr, last: Expr) -> Sym:
        """Copy the pairs of the groups from ``first`` to before ``last``; how many there are."""
        found = at.register(integer(0))
        with at.loop(0, count) as i:
            key = at.let(self.all.key(at, i))
            # Written in any case, and counted if wanted: no branch that nobody can foretell.
            self.turn.put(at, at.index(found), key, self.all.place(at, i))
            group = at.let(self._group(key))
            wanted = call("and", call("ge", group, first), call("lt", group, last))
            at.assign(found, call("add", found, convert(wanted, I64)))
        return at.index(found)


def best_first(at: AlgorithmBuilder, order: KeyOrder, room: Index) -> BestFirst:
    """Scratch memory for ``room`` pairs."""
    own = at.scratch(order.key, room), at.scratch(I64, room)
    sizes = at.scratch(I64, GROUPS)
    pairs = KeyedPlaces(order, *own, sizes, room)
    return BestFirst(pairs, keyed_places(at, order, room), sizes)
