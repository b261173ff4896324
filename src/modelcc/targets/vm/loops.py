"""Numbers that depend on loop counters: their values, and their encoding in bytecode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from modelcc.ir.errors import ModelError
from modelcc.ir.index import (
    Atom,
    FloorDiv,
    FloorMod,
    Index,
    IndexMax,
    IndexMin,
    Sym,
    evaluate,
    symbols,
)

NUMBER, NEGATIVE, COUNTER, SUM, PRODUCT, QUOTIENT, REMAINDER, LEAST, GREATEST = range(9)
STACK = 8
"""Depth of the interpreter's stack for an expression."""

_MOST_NUMBER = (1 << 28) - 1
_MOST_TURNS = 4096
"""Maximum iterations of loops for which the numbers of a kernel are checked."""


@dataclass(frozen=True)
class CountedLoop:
    """A loop's counter, and its number of iterations (None: unknown)."""

    counter: str
    trips: Index | None


def first_turn(loops: Sequence[CountedLoop]) -> dict[str, int]:
    """The counters of the first iteration."""
    return {loop.counter: 0 for loop in loops}


def values_of(
    sizes: Sequence[Index], loops: Sequence[CountedLoop], source: tuple[str, ...]
) -> tuple[tuple[int, ...], ...]:
    """All values of ``sizes`` in the iterations of ``loops``, those of the first one first.

    :class:`ModelError` if these are too many to enumerate, or negative.
    """
    used = {name for size in sizes for name in symbols(size)}
    inside = [loop for loop in loops if loop.counter in used]
    turns = 1
    for loop in inside:
        turns *= max(1, loop.trips) if isinstance(loop.trips, int) else _MOST_TURNS + 1
    if turns > _MOST_TURNS:
        message = f"bytecode has no form of a kernel whose sizes vary over {_MOST_TURNS} turns"
        raise ModelError(f"{message} or more", source, "--emit c has one")
    found: dict[tuple[int, ...], None] = {}
    for counters in product(*(range(max(1, int(str(loop.trips)))) for loop in inside)):
        at = dict(zip((loop.counter for loop in inside), counters, strict=True))
        found[tuple(evaluate(size, at) for size in sizes)] = None
    if any(number < 0 for run in found for number in run):
        raise ModelError("bytecode has no form of negative sizes", source, "--emit c has one")
    return tuple(found)


def expression(value: Index, counters: Sequence[str]) -> list[int]:
    """An index expression of ``counters`` encoded in postfix order."""
    words = _postfix(value, {name: n for n, name in enumerate(counters)})
    depth = deepest = 0
    for word in words:
        depth += 1 if word & 15 <= COUNTER else -1
        deepest = max(deepest, depth)
    if deepest > STACK:
        raise ModelError(f"the sizes of a loop are too long an expression: {value}", ())
    return words


def _postfix(value: Index, counters: Mapping[str, int]) -> list[int]:
    if isinstance(value, int):
        if abs(value) > _MOST_NUMBER:
            raise ModelError(f"a number of a loop is too large: {value}", ())
        return [(NEGATIVE if value < 0 else NUMBER) | abs(value) << 4]
    if isinstance(value, Atom):
        return _atom(value, counters)
    terms: list[list[int]] = []
    for coefficient, factors in value.terms.values():
        parts = [_postfix(factor, counters) for factor in factors]
        parts += [_postfix(coefficient, counters)] if coefficient != 1 else []
        terms.append(_chained(parts, PRODUCT))
    terms += [_postfix(value.const, counters)] if value.const else []
    return _chained(terms, SUM)


def _atom(value: Atom, counters: Mapping[str, int]) -> list[int]:
    match value:
        case Sym(name):
            return [COUNTER | counters[name] << 4]
        case FloorDiv() | FloorMod():
            kind = QUOTIENT if isinstance(value, FloorDiv) else REMAINDER
            return _chained([_postfix(e, counters) for e in value.operands()], kind)
        case IndexMin(args) | IndexMax(args):
            kind = LEAST if isinstance(value, IndexMin) else GREATEST
            return _chained([_postfix(e, counters) for e in args], kind)
        case _:
            raise TypeError(f"unknown kind of index atom: {type(value).__name__}")


def _chained(parts: Sequence[list[int]], kind: int) -> list[int]:
    """The parts combined by an operation, from left to right."""
    found = list(parts[0])
    for part in parts[1:]:
        found += [*part, kind]
    return found
