"""Upper bounds of index expressions after the elimination of some symbols.

Sizes that are read at run time are bounded by the dimensions of the inputs: with ``0 <= k <= n``
the ``4*k + 64`` bytes of a tensor are at most ``4*n + 64``.  Bounds are found term by term
(interval arithmetic), so they are safe, not always the least.
"""

from __future__ import annotations

from collections.abc import Collection

from modelcc.ir.index_expr import Atom, FloorDiv, FloorMod, Index, Sym, floordiv, symbols
from modelcc.ir.index_extremum import IndexMax, IndexMin, maximum, minimum
from modelcc.ir.index_interval import ANY, Bounds
from modelcc.ir.index_simplify import compare

DEPTH = 16
"""Maximum depth of bounds of bounds, which may be circular."""


def upper_bound(e: Index, gone: Collection[str], bounds: Bounds) -> Index | None:
    """An upper bound of ``e`` without the symbols ``gone``; None if none was found."""
    return _Eliminator(frozenset(gone), bounds).bound(e, True, DEPTH)


class _Eliminator:
    def __init__(self, gone: frozenset[str], bounds: Bounds) -> None:
        self._gone = gone
        self._bounds = bounds

    def bound(self, e: Index, upper: bool, depth: int) -> Index | None:
        """An upper or lower bound of ``e``."""
        if not symbols(e) & self._gone or isinstance(e, int):
            return e
        if depth == 0:
            return None
        if isinstance(e, Atom):
            return self._atom(e, upper, depth - 1)
        total: Index = e.const
        for coeff, factors in e.terms.values():
            product = self._product(factors, upper == (coeff > 0), depth - 1)
            if product is None:
                return None
            total = total + product * coeff
        return total

    def _product(self, factors: tuple[Atom, ...], upper: bool, depth: int) -> Index | None:
        result: Index = 1
        for factor in factors:
            value = self.bound(factor, upper, depth)
            if value is None:
                return None
            if len(factors) > 1 and not self._never_negative(factor, value):
                return None
            result = result * value
        return result

    def _never_negative(self, factor: Atom, bound: Index) -> bool:
        return all(compare(e, ">=", 0, self._bounds) is True for e in (factor, bound))

    def _atom(self, e: Atom, upper: bool, depth: int) -> Index | None:
        match e:
            case Sym(name):
                known = self._bounds.get(name, ANY)
                found = known.hi if upper else known.lo
                return None if found is None else self.bound(found, upper, depth)
            case FloorDiv(dividend, int(divisor)) if divisor > 0:
                value = self.bound(dividend, upper, depth)
                return None if value is None else floordiv(value, divisor)
            case FloorDiv(dividend, divisor) if compare(divisor, ">=", 1, self._bounds):
                # dividing by at least 1 reduces the magnitude
                value = self.bound(dividend, upper, depth)
                return None if value is None else self._towards_zero(value, upper)
            case FloorMod(_, divisor) if compare(divisor, ">=", 1, self._bounds):
                value = self.bound(divisor, True, depth) if upper else 1
                return None if value is None else value - 1
            case IndexMin(args) | IndexMax(args):
                return self._extremum(e, args, upper, depth)
            case _:
                return None

    def _towards_zero(self, value: Index, upper: bool) -> Index:
        return maximum(value, 0) if upper else minimum(value, 0)

    def _extremum(
        self, e: IndexMin | IndexMax, args: tuple[Index, ...], upper: bool, depth: int
    ) -> Index | None:
        found = [self.bound(arg, upper, depth) for arg in args]
        known = [value for value in found if value is not None]
        one_suffices = upper == isinstance(e, IndexMin)
        if not known or (len(known) < len(found) and not one_suffices):
            return None
        combine = minimum if isinstance(e, IndexMin) else maximum
        return combine(*known)
