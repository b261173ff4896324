"""Minimum and maximum of index expressions, as expressions of a kernel's parameters (interval
analysis).

Parameters are nonnegative and have one value; symbols bound by loops and memory have a range.
Bounds hold for all parameters, if no value exceeds 32 bits; they are conservative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from modelcc.ir.index import (
    Atom,
    Expr,
    FloorDiv,
    FloorMod,
    Index,
    IndexMax,
    IndexMin,
    Sym,
    floordiv,
    maximum,
    minimum,
    product,
)
from modelcc.ir.loop import For

WORD = (1 << 31) - 1
MOST = (1 << 27) - 1
"""Maximum of index parameters: buffers have at most a GiB."""


@dataclass(frozen=True)
class Hull:
    """Inclusive bounds."""

    lo: Index
    hi: Index

    @property
    def is_point(self) -> bool:
        """Whether it is a single value."""
        return self.lo == self.hi


Known: TypeAlias = Mapping[str, Hull]
"""Ranges of symbols; those missing are parameters."""


class NoHullError(Exception):
    """An expression has no bounds; the message says why."""


def hull(e: Index, known: Known) -> Hull:
    """The bounds of ``e``; :class:`NoHullError` for products of possibly negative ranges."""
    if isinstance(e, int):
        return Hull(e, e)
    if isinstance(e, Atom):
        return _atom(e, known)
    lo: Index = e.const
    hi: Index = e.const
    for coefficient, factors in e.terms.values():
        one = _product([hull(f, known) for f in factors])
        ends = (one.lo, one.hi) if coefficient > 0 else (one.hi, one.lo)
        lo, hi = lo + coefficient * ends[0], hi + coefficient * ends[1]
    return Hull(lo, hi)


def is_value(name: str) -> bool:
    """Whether a parameter is no index, so that it may have any value."""
    return name.startswith("V")


def is_natural(e: Index) -> bool:
    """Whether ``e`` is provably nonnegative, for all parameters."""
    match e:
        case int():
            return e >= 0
        case Sym():
            return not is_value(e.name)
        case IndexMax(args):
            return any(map(is_natural, args))
        case IndexMin(args):
            return all(map(is_natural, args))
        case FloorDiv(dividend, _):
            return is_natural(dividend)
        case FloorMod():
            return True
        case _:
            natural = (all(map(is_natural, factors)) for _, factors in e.terms.values())
            return e.const >= 0 and all(c > 0 for c, _ in e.terms.values()) and all(natural)


def _product(factors: Sequence[Hull]) -> Hull:
    fixed = product(f.lo for f in factors if f.is_point)
    ranges = [f for f in factors if not f.is_point]
    if not ranges:
        return Hull(fixed, fixed)
    if not all(is_natural(f.lo) for f in factors if f.is_point):
        raise NoHullError("its indices are products of ranges")
    if len(ranges) > 1 and not all(is_natural(f.lo) for f in ranges):
        raise NoHullError("its indices are products of ranges")
    return Hull(
        product([fixed, *(f.lo for f in ranges)]), product([fixed, *(f.hi for f in ranges)])
    )


def _atom(e: Atom, known: Known) -> Hull:
    match e:
        case Sym(name):
            return known.get(name) or Hull(e, e)
        case FloorDiv(dividend, divisor):
            a, b = hull(dividend, known), _divisor(divisor, known)
            return Hull(floordiv(a.lo, b), floordiv(a.hi, b))
        case FloorMod(dividend, divisor):
            a, b = hull(dividend, known), _divisor(divisor, known)
            return Hull(e, e) if a.is_point else Hull(0, maximum(b - 1, 0))
        case IndexMin(args):
            found = [hull(a, known) for a in args]
            return Hull(minimum(*(f.lo for f in found)), minimum(*(f.hi for f in found)))
        case IndexMax(args):
            found = [hull(a, known) for a in args]
            return Hull(maximum(*(f.lo for f in found)), maximum(*(f.hi for f in found)))
        case _:
            raise NoHullError("its indices are products of ranges")


def _divisor(e: Index, known: Known) -> Index:
    found = hull(e, known)
    if not found.is_point:
        raise NoHullError("its indices are products of ranges")
    return found.lo


def magnitude(e: Index, known: Known) -> Index:
    """An upper bound of the absolute value of every partial sum of ``e``'s terms."""
    if isinstance(e, int):
        return abs(e)
    terms = {e.text: (1, (e,))} if isinstance(e, Atom) else e.terms
    total: Index = 0 if isinstance(e, Atom) else abs(e.const)
    for coefficient, factors in terms.values():
        total = total + abs(coefficient) * product(_greatest(f, known) for f in factors)
    return total


def _greatest(e: Atom, known: Known) -> Index:
    found = hull(e, known)
    return found.hi if is_natural(found.lo) else maximum(found.hi, -found.lo)


def most(e: Index) -> int:
    """The same bound as an integer, if no parameter exceeds :data:`MOST`."""
    match e:
        case int():
            return abs(e)
        case Sym():
            return MOST
        case IndexMax(args) | IndexMin(args):
            return max(map(most, args))
        case FloorDiv(dividend, _):
            return most(dividend) + 1
        case FloorMod(_, divisor):
            return most(divisor)
        case _:
            terms = e.terms.values()
            return abs(e.const) + sum(abs(c) * prod(map(most, m)) for c, m in terms)


def magnitudes(e: Index, known: Known) -> list[Index]:
    """The magnitudes of ``e`` and of its operands."""
    return [magnitude(one, known) for one in (e, *parts(e))]


def shifted(a: Hull, b: Hull) -> Hull:
    """The hull of sums of a value of each."""
    return Hull(a.lo + b.lo, a.hi + b.hi)


def loop_hull(s: For, known: Known) -> Hull:
    """The hull of a loop's variable, including its start."""
    start, stop = hull(s.start, known), hull(s.stop, known)
    if s.step == 1 or not start.is_point:
        return Hull(start.lo, maximum(stop.hi - 1, start.lo))
    whole = floordiv(maximum(stop.hi - 1 - start.lo, 0), s.step)
    return Hull(start.lo, start.lo + s.step * whole)


def parts(e: Index) -> tuple[Index, ...]:
    """The operands of quotients, minima … in ``e``, recursively."""
    if isinstance(e, int):
        return ()
    atoms = (e,) if isinstance(e, Atom) else [a for _, m in e.terms.values() for a in m]
    found: list[Index] = []
    for atom in atoms:
        for operand in atom.operands():
            found += (operand, *parts(operand))
    return tuple(found)


def divisors(e: Index) -> tuple[Index, ...]:
    """The divisors in ``e`` and its operands."""
    found: list[Index] = []
    for one in (e, *parts(e)):
        atoms: Sequence[Expr] = (
            () if isinstance(one, int) else (one,) if isinstance(one, Atom)
            else [a for _, m in one.terms.values() for a in m]
        )  # fmt: skip
        found += (a.divisor for a in atoms if isinstance(a, FloorDiv | FloorMod))
    return tuple(found)
