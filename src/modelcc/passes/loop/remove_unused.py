"""Dead code elimination.

    let %t = load %x[i]
    let %u = load %x[i + 1]
    store %y[i], %t

becomes::

    let %t = load %x[i]
    store %y[i], %t

Blocks of kernels are generated as a whole (four rows transposed, of which three are stored), and C
compilers warn about unused variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.loop import BindIndex, Function, Let, Stmt
from modelcc.ir.loop_traversal import map_blocks, names_used


def remove_unused(function: Function) -> Function:
    """``function`` without unused values and index symbols."""
    return replace(function, body=_needed(function.body, set()))


def _needed(body: Sequence[Stmt], used: set[str]) -> tuple[Stmt, ...]:
    """``body`` without values used neither in it nor in ``used``, the names used after it."""
    kept: list[Stmt] = []
    for s in reversed(body):
        match s:
            case Let(name) | BindIndex(name) if name not in used:
                continue
            case _:
                kept.append(map_blocks(s, lambda block: _needed(block, used)))
                used.update(names_used((map_blocks(s, lambda _: ()),)))
    return tuple(reversed(kept))
