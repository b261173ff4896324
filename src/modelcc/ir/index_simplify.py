"""Simplification and comparison of index expressions under bounds on their symbols."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import eq, ge, gt, le, lt, ne
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from modelcc.ir.index_bounds import Prover, known_divisor
from modelcc.ir.index_expr import (
    Atom,
    Expr,
    FloorDiv,
    FloorMod,
    Index,
    Monomial,
    Sym,
    cancel,
    common_factor,
    floordiv,
    mod,
    product,
    term,
)
from modelcc.ir.index_extremum import IndexMax, IndexMin, maximum, minimum
from modelcc.ir.index_interval import Bounds

Comparison: TypeAlias = Literal["<", "<=", "==", "!=", ">", ">="]

_NUMBERS: Final[Mapping[Comparison, Callable[[int, int], bool]]] = MappingProxyType(
    {"<": lt, "<=": le, "==": eq, "!=": ne, ">": gt, ">=": ge}
)


def simplify(e: Index, bounds: Bounds) -> Index:
    """An index equal to ``e`` wherever ``bounds`` hold, with fewer quotients and remainders.

    Divisors are taken to be non-zero. Idempotent for the rules it has; never larger than ``e``
    in the number of operations.
    """
    if isinstance(e, int):
        return e
    return _Simplifier(bounds).simplify(e)


def compare(a: Index, op: Comparison, b: Index, bounds: Bounds) -> bool | None:
    """Whether ``a op b`` holds for all (True) or none (False) of the values; None: not proved."""
    if isinstance(a, int) and isinstance(b, int):
        return _NUMBERS[op](a, b)
    match op:
        case "<":
            return _less(a, b, 1, bounds)
        case "<=":
            return _less(a, b, 0, bounds)
        case ">":
            return _less(b, a, 1, bounds)
        case ">=":
            return _less(b, a, 0, bounds)
        case "==":
            return _equal(a, b, bounds)
        case "!=":
            same = _equal(a, b, bounds)
            return None if same is None else not same


def divides(d: int, e: Index, bounds: Bounds) -> bool:
    """Whether every value of ``e`` is proved to be a multiple of ``d`` (not 0)."""
    if d == 0:
        raise ValueError(f"divides(0, {e}): no number is a multiple of 0")
    return known_divisor(e, bounds) % d == 0 or simplify(mod(e, abs(d)), bounds) == 0


def _less(a: Index, b: Index, margin: int, bounds: Bounds) -> bool | None:
    """Whether ``b - a >= margin``."""
    gap = b - a
    if isinstance(gap, int):
        return gap >= margin
    return _at_least(gap, margin, bounds)


def _at_least(e: Expr, target: int, bounds: Bounds) -> bool | None:
    prover = Prover(bounds)
    if prover.at_least(e, target):
        return True
    if prover.at_least(-e, 1 - target):
        return False
    simple = simplify(e, bounds) if _has_structure(e) else e
    if simple == e:
        return None
    return simple >= target if isinstance(simple, int) else _at_least(simple, target, bounds)


def _equal(a: Index, b: Index, bounds: Bounds) -> bool | None:
    gap = simplify(a - b, bounds)
    if isinstance(gap, int):
        return gap == 0
    prover = Prover(bounds)
    above, below = prover.at_least(gap, 0), prover.at_least(-gap, 0)
    if above and below:
        return True
    if prover.at_least(gap, 1) or prover.at_least(-gap, 1):
        return False
    divisor = known_divisor(gap - gap.const, bounds)
    return False if divisor and gap.const % divisor else None


def _has_structure(e: Expr) -> bool:
    return any(not isinstance(atom, Sym) for _, mono in e.terms.values() for atom in mono)


class _Simplifier:
    """One traversal: simplified atoms are memoised by text, bounds by the prover."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._prover = Prover(bounds)
        self._done: dict[str, Index] = {}

    def simplify(self, e: Index) -> Index:
        if isinstance(e, int):
            return e
        result: Index = e
        for coeff, mono in e.terms.values():
            simple = [self._atom(atom) for atom in mono]
            if any(new is not old for new, old in zip(simple, mono, strict=True)):
                result = result - term(coeff, mono) + coeff * product(simple)
        return self._combined(result) if isinstance(result, Expr) else result

    def _atom(self, atom: Atom) -> Index:
        done = self._done.get(atom.text)
        if done is None:
            done = self._done[atom.text] = self._simplify_atom(atom)
        return done

    def _simplify_atom(self, atom: Atom) -> Index:
        if isinstance(atom, Sym):
            return self._symbol(atom)
        operands = [self.simplify(e) for e in atom.operands()]
        if any(new is not old for new, old in zip(operands, atom.operands(), strict=True)):
            rebuilt = self._rebuilt(atom, operands)
            if rebuilt != atom:
                return self.simplify(rebuilt)
        match atom:
            case FloorDiv(dividend, divisor):
                return self._changed(atom, self._quotient(dividend, divisor))
            case FloorMod(dividend, divisor):
                return self._changed(atom, self._remainder(dividend, divisor))
            case IndexMin(args):
                return self._changed(atom, minimum(*self._pruned(args, 1)))
            case IndexMax(args):
                return self._changed(atom, maximum(*self._pruned(args, -1)))
            case _:
                return atom

    def _symbol(self, symbol: Sym) -> Index:
        """The symbol, or its value if bounds leave only one."""
        if symbol.name not in self._bounds:
            return symbol
        known = self._prover.range_of(symbol)
        return symbol if known.lo is None or known.lo != known.hi else known.lo

    def _changed(self, atom: Atom, new: Index | None) -> Index:
        return atom if new is None or new == atom else self.simplify(new)

    def _rebuilt(self, atom: Atom, operands: list[Index]) -> Index:
        match atom:
            case FloorDiv() | FloorMod() if operands[1] == 0:
                return atom  # undefined within these bounds; evaluating it raises the error
            case FloorDiv():
                return floordiv(*operands)
            case FloorMod():
                return mod(*operands)
            case IndexMin():
                return minimum(*operands)
            case _:
                return maximum(*operands)

    # --- quotients and remainders

    def _quotient(self, a: Index, b: Index) -> Index | None:
        constant = self._constant_quotient(a, b)
        if constant is not None:
            return constant
        if isinstance(a, FloorDiv) and self._positive(b):
            return floordiv(a.dividend, a.divisor * b)
        if isinstance(a, FloorMod):
            times = floordiv(a.divisor, b)
            if times * b == a.divisor and self._positive(times):
                return mod(floordiv(a.dividend, b), times)
        split = self._split(a, b)
        return None if split is None else floordiv(split[0], split[1])

    def _remainder(self, a: Index, b: Index) -> Index | None:
        constant = self._constant_quotient(a, b)
        if constant is not None:
            return a - constant * b
        split = self._split(a, b)
        if split is None:
            return None
        whole, divisor, factor, low = split
        return factor * mod(whole, divisor) + low

    def _positive(self, divisor: Index) -> bool:
        """Whether a divisor, or a factor of one, is at least 1, given that it is not 0 (with a
        named extent of 0 there is nothing to divide)."""
        return self._prover.at_least(divisor, 0)

    def _constant_quotient(self, a: Index, b: Index) -> int | None:
        """The quotient if bounds leave a single value; for a symbolic divisor only 0 and -1 are
        tried."""
        prover = self._prover
        if isinstance(b, int):
            low = prover.lower(a)
            if low is None:
                return None
            return low // b if prover.at_least(b * (low // b + 1) - 1 - a, 0) else None
        for quotient in (0, -1):
            rest = a - quotient * b
            if prover.at_least(rest, 0) and prover.at_least(b - 1 - rest, 0):
                return quotient
        return None

    def _split(self, a: Index, b: Index) -> tuple[Index, Index, Index, Index] | None:
        """``(y, d, g, k)`` with ``a == g*y + k``, ``b == g*d``, ``0 <= k < g`` and ``d >= 1``."""
        if isinstance(a, int):
            return None
        for content, mono in _factors(a, b):
            factor = term(content, mono)
            inner = cancel(b, content, mono)
            whole, low = _multiples(a, content, mono)
            if whole == 0 or not self._positive(inner):
                continue
            shift = self._constant_quotient(low, factor)
            if shift is not None:
                y = cancel(whole, content, mono) + shift
                return y, inner, factor, low - shift * factor
        return None

    def _pruned(self, args: tuple[Index, ...], sign: int) -> list[Index]:
        """Arguments of a minimum (sign 1) or maximum (-1) that no other one makes redundant."""
        kept = list(args)
        for arg in args:
            others = [other for other in kept if other is not arg]
            if any(self._prover.at_least((arg - other) * sign, 0) for other in others):
                kept = others
        return kept

    # --- sums

    def _combined(self, e: Expr) -> Index:
        """Combines quotients and remainders of the same value where that is smaller."""
        if not _has_structure(e):
            return e
        size = index_size(e)
        for candidate in self._combinations(e):
            if index_size(candidate) < size:
                return self.simplify(candidate)
        return e

    def _combinations(self, e: Expr) -> list[Index]:
        found: list[Index] = []
        remainders = [
            (coeff, mono, atom)
            for coeff, mono in e.terms.values()
            for atom in mono
            if isinstance(atom, FloorMod)
        ]
        for coeff, mono, atom in remainders:
            x, d = atom.dividend, atom.divisor
            quotient = self.simplify(floordiv(x, d))
            found.append(e + _replacement(coeff, mono, atom, x - d * quotient))
        for coeff, mono in e.terms.values():
            for atom in mono:
                if isinstance(atom, FloorDiv):
                    found.extend(self._folded(e, coeff, mono, atom))
        if len(remainders) > 1:
            divisors = {str(atom.divisor): atom.divisor for _, _, atom in remainders}
            for coeff, mono, atom in remainders:
                for outer in divisors.values():
                    found.extend(self._joined(e, coeff, mono, atom, outer))
        return found

    def _folded(self, e: Expr, coeff: int, mono: Monomial, atom: FloorDiv) -> list[Index]:
        """``k*x - k*d*(x floordiv d)`` is ``k*(x mod d)``."""
        x, d = atom.dividend, atom.divisor
        cofactor = coeff * product(f for f in mono if f is not atom)
        times = floordiv(cofactor, d)
        if times * d != cofactor:
            return []
        return [e - cofactor * atom + times * (x - self.simplify(mod(x, d)))]

    def _joined(
        self, e: Expr, coeff: int, mono: Monomial, atom: FloorMod, outer: Index
    ) -> list[Index]:
        """``d*((x floordiv d) mod m) + x mod d`` is ``x mod (d*m)`` for ``m >= 1``."""
        x, d = atom.dividend, atom.divisor
        if not self._positive(outer):
            return []
        high = self.simplify(mod(floordiv(x, d), outer))
        joined = self.simplify(mod(x, d * outer))
        return [e + _replacement(coeff, mono, atom, joined - d * high)]


def _replacement(coeff: int, mono: Monomial, old: Atom, new: Index) -> Index:
    """The difference to add to a sum so that ``new`` replaces one ``old`` in the term."""
    others = list(mono)
    others.remove(old)
    return coeff * product(others) * (new - old)


def _factors(a: Expr, b: Index) -> list[tuple[int, Monomial]]:
    """Factors that ``b`` shares with some term of ``a``, the largest first; not 1."""
    found: dict[str, tuple[int, Monomial]] = {}
    for coeff, mono in a.terms.values():
        factor = common_factor(term(coeff, mono), b)
        if factor != (1, ()):
            found[str(term(*factor))] = factor
    return sorted(found.values(), key=lambda f: (-len(f[1]), -f[0], str(term(*f))))


def _multiples(a: Expr, content: int, mono: Monomial) -> tuple[Index, Index]:
    """The terms of ``a`` that are multiples of a factor, and the rest."""
    whole: Index = 0
    for coeff, factors in a.terms.values():
        own = term(coeff, factors)
        shared, common = common_factor(own, term(content, mono))
        if shared == content and len(common) == len(mono):
            whole = whole + own
    return whole, a - whole


def index_size(e: Index) -> int:
    """Number of constants, symbols and operations when ``e`` is written out."""
    if isinstance(e, int):
        return 1
    size = 1 if e.const else 0
    for coeff, mono in e.terms.values():
        size += 1 if coeff == 1 else 2
        for atom in mono:
            size += 1 + sum(index_size(operand) for operand in atom.operands())
    return size
