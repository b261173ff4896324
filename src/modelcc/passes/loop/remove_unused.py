"""What is computed and never used goes.

    let %t = load %x[i]
    let %u = load %x[i + 1]
    store %y[i], %t

becomes::

    let %t = load %x[i]
    store %y[i], %t

Blocks of kernels are made whole (four rows transposed, of which three are stored), and compilers
of C warn of variables that nothing reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modelcc.ir.loop import BindIndex, Function, Let, Stmt
from modelcc.ir.loop_traversal import map_blocks, names_used


def remove_unused(function: Function) -> Function:
    """``function`` without values and index symbols that nothing mentions."""
    return replace(function, body=_needed(function.body, set()))


def _needed(body: Sequence[Stmt], used: set[str]) -> tuple[Stmt, ...]:
    """``body`` without what neither it nor ``used``, the names of all after it, mentions."""
    kept: list[Stmt] = []
    for s in reversed(body):
        match s:
            case Let(name) | BindIndex(name) if name not in used:
                continue
            case _:
                kept.append(map_blocks(s, lambda block: _needed(block, used)))
                used.update(names_used((map_blocks(s, lambda _: ()),)))
    return tuple(reversed(kept))
