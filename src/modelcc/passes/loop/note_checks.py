"""Checks of indices in functions with barriers: no thread may exit before the others.

    index %i = load %places[t]
    check index[i64](i) below [8]
    let %v = load %table[i]
    barrier

becomes::

    index %i.noted = load %places[t]
    check noting index[i64](i.noted) below [8]
    index %i = select(predicate(i.noted >= 0, i.noted < 8), index[i64](i.noted), i64(0))
    let %v = load %table[i]
    barrier

The run ends after such a launch, so the element that is read does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.condition import Condition
from modelcc.ir.index import Bounds, Index, Sym, compare
from modelcc.ir.loop import BindIndex, Check, Const, IndexOf, Predicate, Select, Stmt
from modelcc.ir.loop_traversal import map_blocks
from modelcc.ir.types import I64


def note_checks(body: Sequence[Stmt], dims: Bounds) -> tuple[Stmt, ...]:
    """``body`` where threads continue after checks, at index 0 where one is out of range.

    A check is unchanged if 0 may be out of range, too, or its index is not bound directly before
    it.
    """
    found: list[Stmt] = []
    for s in body:
        last = found[-1] if found else None
        match last, s:
            case BindIndex(symbol), Check(IndexOf(Sym(checked)), extent) if (
                symbol == checked and compare(extent, ">=", 1, dims)
            ):
                noted = f"{symbol}.noted"
                found[-1:] = [
                    replace(last, symbol=noted),
                    replace(s, value=IndexOf(Sym(noted), I64), noting=True),
                    BindIndex(symbol, _within(Sym(noted), extent)),
                ]
            case _:
                found.append(map_blocks(s, lambda block: note_checks(block, dims)))
    return tuple(found)


def _within(index: Sym, extent: Index) -> Select:
    """``index`` where that is below ``extent``, else 0."""
    inside = Predicate((Condition(index, ">=", 0), Condition(index, "<", extent)))
    return Select(inside, IndexOf(index, I64), Const(0, I64))
