"""Which symbols an index expression divides by: what makes a divisor zero has no meaning."""

from __future__ import annotations

from collections.abc import Iterator

from modelcc.ir.index_expr import FloorDiv, FloorMod, Index, symbols


def divided_by(e: Index) -> frozenset[str]:
    """Names of the symbols in divisors of ``e``, those within its operands too.

    >>> from modelcc.ir.index import parse_index
    >>> sorted(divided_by(parse_index("(a floordiv b) * c + d mod 4")))
    ['b']
    """
    return frozenset[str]().union(*_divisors(e))


def _divisors(e: Index) -> Iterator[frozenset[str]]:
    if isinstance(e, int):
        return
    for atom in (atom for _, mono in e.terms.values() for atom in mono):
        if isinstance(atom, FloorDiv | FloorMod):
            yield symbols(atom.divisor)
        for operand in atom.operands():
            yield from _divisors(operand)
