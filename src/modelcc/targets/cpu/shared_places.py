"""Rows gathered at the same indices: these are loaded once for several of them."""

from __future__ import annotations

from modelcc.ir.scalar_tree import depends_on, walk
from modelcc.ir.tensor import Bind
from modelcc.schedule.nest import LoopVar
from modelcc.schedule.structure import Group

SHARING = 4
"""Rows that are gathered at once: more would exceed the vector registers."""


def rows_gathered_alike(group: Group, lane: str, blocks: str) -> LoopVar | None:
    """The innermost loop over rows whose lanes gather at the same indices from memory."""
    loops = [v for v in group.final.parallel if v.name not in (lane, blocks) and v.extent != 1]
    found = [s for n in group.nests for s in walk(n.body) if isinstance(s, Bind)]
    spread = [s.value for s in found if depends_on(s.value, lane)]
    if not loops or not spread or any(depends_on(value, loops[-1].name) for value in spread):
        return None
    return loops[-1]
