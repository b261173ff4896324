"""Lower bounds of index expressions from bounds on their symbols.

Everything proved about an index is a statement ``e >= c``. :class:`Prover` finds the best such
``c`` by interval arithmetic, then by *elimination*: where ``e`` is linear in an atom whose
coefficient has a known sign, the atom is replaced by a bound of it, which may be symbolic
(``i <= n - 1``), so that correlated terms cancel (``n - 1 - i >= 0``). It is Fourier-Motzkin
elimination (Dantzig & Eaves 1973) restricted to one objective.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import gcd

from modelcc.ir.index_expr import (
    Atom,
    Expr,
    FloorDiv,
    FloorMod,
    Index,
    Sym,
    divide_terms,
    floordiv,
    term,
)
from modelcc.ir.index_extremum import IndexMax, IndexMin
from modelcc.ir.index_interval import (
    ANY,
    Bounds,
    Interval,
    all_known,
    any_known,
    monomial_range,
    quotient_range,
    remainder_range,
)

STEPS = 400
"""Atoms one prover may eliminate in total; bounds the time, never the truth of an answer."""

EXPANDED = 1 << 12
"""Maximum number of terms when products of symbols are expanded to sums."""

DEPTH = 16
"""Maximum depth of elimination; facts may be circular."""


def bounds_of(e: Index, bounds: Bounds) -> Interval:
    """Numeric bounds of ``e``: exact for sums of independent symbols, else safe."""
    if isinstance(e, int):
        return Interval(e, e)
    prover = Prover(bounds)
    return Interval(prover.lower(e), prover.upper(e))


def known_divisor(e: Index, bounds: Bounds) -> int:
    """The greatest number found to divide every value of ``e``; 0 if ``e`` is always 0."""
    if isinstance(e, int):
        return abs(e)
    result = e.const
    for coeff, mono in e.terms.values():
        for atom in mono:
            coeff *= _atom_divisor(atom, bounds)
        result = gcd(result, coeff)
    return abs(result)


def _atom_divisor(atom: Atom, bounds: Bounds) -> int:
    match atom:
        case Sym(name):
            known = bounds.get(name, ANY)
            return abs(known.lo) if isinstance(known.lo, int) and known.lo == known.hi else 1
        case FloorDiv(dividend, int(divisor)):
            times, rest = divmod(known_divisor(dividend, bounds), divisor)
            return 1 if rest else times
        case FloorDiv():
            return 1
        case _:
            return gcd(*(known_divisor(e, bounds) for e in atom.operands()))


class Prover:
    """Finds numeric bounds under fixed facts; memoises those of atoms."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._ranges: dict[str, Interval] = {}
        self._lowers: dict[str, int | None] = {}
        self._steps = STEPS
        self._depth = 0

    def at_least(self, e: Index, target: int) -> bool:
        """Whether ``e >= target`` is proved."""
        low = self.lower(e, target)
        return low is not None and low >= target

    def upper(self, e: Index) -> int | None:
        """The least upper bound found for ``e``."""
        low = self.lower(-e)
        return None if low is None else -low

    def lower(self, e: Index, target: int | None = None) -> int | None:
        """The greatest lower bound found for ``e``; stops early at ``target``."""
        if isinstance(e, int):
            return e
        best, exact = self._interval(e)
        if exact or _reached(best, target):
            return best
        if e.text in self._lowers:
            return self._lowers[e.text]
        best = self._eliminate(e, best, target)
        if not _reached(best, target):
            self._lowers[e.text] = best
        return best

    def range_of(self, atom: Atom) -> Interval:
        """Numeric bounds of one atom."""
        known = self._ranges.get(atom.text)
        if known is None:
            self._ranges[atom.text] = ANY  # for cyclic facts
            known = self._ranges[atom.text] = self._find_range(atom)
        return known

    # --- intervals

    def _interval(self, e: Expr) -> tuple[int | None, bool]:
        """A lower bound by interval arithmetic, and whether it is attained."""
        total = e.const
        exact = True
        bounds = self._bounds
        for coeff, mono in e.terms.values():
            atom = mono[0]
            if len(mono) > 1:
                return self._lowest_products(e), False
            if type(atom) is Sym:
                known = bounds.get(atom.name, ANY)
                bound = known.lo if coeff > 0 else known.hi
                if type(bound) is int:
                    total += coeff * bound
                    continue
                if bound is None:
                    return None, all(self._is_plain(m[0]) for _, m in e.terms.values())
            exact = False
            known = self.range_of(atom)
            bound = known.lo if coeff > 0 else known.hi
            if bound is None:
                return None, False
            total += coeff * bound
        return total, exact

    def _is_plain(self, atom: Atom) -> bool:
        if not isinstance(atom, Sym):
            return False
        known = self._bounds.get(atom.name, ANY)
        return not isinstance(known.lo, Expr) and not isinstance(known.hi, Expr)

    def _lowest_products(self, e: Expr) -> int | None:
        """If no coefficient and no atom can be negative, the sum is least where all atoms are."""
        total = e.const
        for coeff, mono in e.terms.values():
            if coeff < 0:
                return None
            for atom in mono:
                low = self.range_of(atom).lo
                if low is None or low < 0:
                    return None
                coeff *= low
            total += coeff
        return total

    def _shifted(self, e: Expr) -> int | None:
        """Interval arithmetic with each symbol written as its bound plus a non-negative rest.

        Then n*m - n == (n' + 1)*m' for n, m >= 1, which is clearly not negative.
        """
        if sum(1 << len(mono) for _, mono in e.terms.values()) > EXPANDED:
            return None
        shifted: Index = e.const
        rests: dict[str, Interval] = {}
        for coeff, mono in e.terms.values():
            value: Index = coeff
            for atom in mono:
                value = value * self._shift(atom, rests)
            shifted = shifted + value
        if isinstance(shifted, int):
            return shifted
        total = shifted.const
        for coeff, mono in shifted.terms.values():
            low = monomial_range(coeff, mono, rests).lo
            if low is None:
                return None
            total += low
        return total

    def _shift(self, atom: Atom, rests: dict[str, Interval]) -> Index:
        known = self.range_of(atom)
        if known.lo is not None:
            if known.lo == 0:
                rests[atom.text] = known
                return atom
            rests[atom.text] = Interval(0, None if known.hi is None else known.hi - known.lo)
            return atom + known.lo
        if known.hi is not None:
            rests[atom.text] = Interval(None, 0)
            return atom + known.hi
        rests[atom.text] = ANY
        return atom

    def _find_range(self, atom: Atom) -> Interval:
        match atom:
            case Sym(name):
                known = self._bounds.get(name, ANY)
                lo = None if known.lo is None else self.lower(known.lo)
                return Interval(lo, None if known.hi is None else self.upper(known.hi))
            case FloorDiv(dividend, divisor):
                return quotient_range(self._both(dividend), self._both(divisor))
            case FloorMod(dividend, divisor):
                return remainder_range(self._both(dividend), self._both(divisor))
            case _:
                ranges = [self._both(e) for e in atom.operands()]
                lows, highs = [r.lo for r in ranges], [r.hi for r in ranges]
                if isinstance(atom, IndexMin):
                    return Interval(all_known(lows, min), any_known(highs, min))
                return Interval(any_known(lows, max), all_known(highs, max))

    def _both(self, e: Index) -> Interval:
        return Interval(self.lower(e), self.upper(e))

    # --- elimination

    def _eliminate(self, e: Expr, best: int | None, target: int | None) -> int | None:
        if self._steps <= 0 or self._depth >= DEPTH:
            return best
        self._steps -= 1
        self._depth += 1
        chosen = self._choose(e)
        for low in self._replaced(e, *chosen, target) if chosen else (self._shifted(e),):
            if low is not None and (best is None or low > best):
                best = low
            if _reached(best, target):
                break
        self._depth -= 1
        return best

    def _choose(self, e: Expr) -> tuple[Atom, Index, int] | None:
        """An atom to eliminate, with its coefficient and its coefficient's sign."""
        for atom in self._candidates(e):
            cofactor = linear_coefficient(e, atom)
            sign = 0 if cofactor is None else self._sign(cofactor)
            if cofactor is not None and sign:
                return atom, cofactor, sign
        return None

    def _candidates(self, e: Expr) -> list[Atom]:
        """Atoms with a symbolic bound, first those that occur in no other one's bound."""
        found: dict[str, tuple[Atom, frozenset[str]]] = {}
        for _, mono in e.terms.values():
            for atom in mono:
                if atom.text not in found and not self._is_plain(atom):
                    found[atom.text] = (atom, self._dependencies(atom))
        mentions = Counter(text for _, deps in found.values() for text in deps)
        return [found[text][0] for text in sorted(found, key=lambda text: (mentions[text], text))]

    def _dependencies(self, atom: Atom) -> frozenset[str]:
        if isinstance(atom, Sym):
            known = self._bounds.get(atom.name, ANY)
            return _texts_inside(known.lo) | _texts_inside(known.hi)
        return frozenset[str]().union(*(_texts_inside(e) for e in atom.operands()))

    def _sign(self, e: Index) -> int:
        """1 where ``e >= 0`` is proved, -1 where ``e <= 0`` is, else 0."""
        if isinstance(e, int):
            return (e > 0) - (e < 0)
        return 1 if self.at_least(e, 0) else -1 if self.at_least(-e, 0) else 0

    def _replaced(
        self, e: Expr, atom: Atom, cofactor: Index, sign: int, target: int | None
    ) -> Iterator[int | None]:
        """Lower bounds of ``e``, one for each bound of the atom, in which it is linear."""
        rest = e - cofactor * atom
        if isinstance(atom, IndexMin | IndexMax):
            cases = (self.lower(rest + cofactor * arg, target) for arg in atom.args)
            if (sign > 0) == isinstance(atom, IndexMin):
                yield all_known(list(cases), min)
            else:
                yield from cases
            return
        if isinstance(atom, FloorDiv):
            yield self._relaxed(rest, cofactor, atom, sign)
        for bound in self._atom_bounds(atom, sign):
            yield self.lower(rest + cofactor * bound, target)

    def _atom_bounds(self, atom: Atom, sign: int) -> Iterator[Index]:
        """Lower (sign > 0) or upper bounds of an atom."""
        is_symbol = isinstance(atom, Sym)
        known = self._bounds.get(atom.name, ANY) if is_symbol else self.range_of(atom)
        bound = known.lo if sign > 0 else known.hi
        if bound is not None:
            yield bound
        if isinstance(atom, FloorMod) and sign < 0:
            if not isinstance(atom.divisor, int) and self.at_least(atom.divisor, 1):
                yield atom.divisor - 1
            if self.at_least(atom.dividend, 0):
                yield atom.dividend

    def _relaxed(self, rest: Index, cofactor: Index, atom: FloorDiv, sign: int) -> int | None:
        """From ``x - (d-1) <= d*(x floordiv d) <= x`` for ``d >= 1``."""
        x, d = atom.dividend, atom.divisor
        if isinstance(d, int):
            whole = cofactor if isinstance(cofactor, int) else known_divisor(cofactor, {})
            scale = d // gcd(d, whole)
            times = floordiv(cofactor * scale, d)
        else:
            scale, remainder = 1, cofactor
            times, remainder = _divide_by(cofactor, d)
            if remainder != 0 or not self.at_least(d, 1):
                return None
        low = self.lower(rest * scale + times * (x if sign < 0 else x - d + 1))
        return None if low is None else -(-low // scale)


def linear_coefficient(e: Expr, atom: Atom) -> Index | None:
    """``c`` with ``e == c*atom + rest``; None if the atom occurs in a product with itself."""
    result: Index = 0
    for coeff, mono in e.terms.values():
        rest = tuple(f for f in mono if f.text != atom.text)
        if len(mono) - len(rest) > 1:
            return None
        if len(rest) < len(mono):
            result = result + term(coeff, rest)
    return result


def _divide_by(e: Index, d: Expr) -> tuple[Index, Index]:
    if len(d.terms) > 1 or d.const:
        return 0, e
    ((coeff, mono),) = d.terms.values()
    return (0, e) if coeff < 0 else divide_terms(e, coeff, mono, exact=True)


def _texts_inside(e: Index | None) -> frozenset[str]:
    """Texts of all atoms in ``e``, at any depth."""
    if e is None or isinstance(e, int):
        return frozenset()
    own = {atom.text: atom for _, mono in e.terms.values() for atom in mono}
    inner = (_texts_inside(o) for atom in own.values() for o in atom.operands())
    return frozenset(own).union(*inner)


def _reached(best: int | None, target: int | None) -> bool:
    return target is not None and best is not None and best >= target
