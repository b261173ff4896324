"""How many points there are, as far as choices between schedules ask."""

from __future__ import annotations

from modelcc.ir.index import Index
from modelcc.schedule.nest import LoopVar
from modelcc.targets.gpu.evaluation import extent_of

USUAL = 512
"""Points of a named size, where they matter to a choice."""

FEW = 8
"""Rows or columns of a product that is bound by what it reads."""


def count(variables: tuple[LoopVar, ...]) -> int:
    """Points along ``variables``, named sizes being the usual ones."""
    return number(extent_of(variables))


def number(index: Index) -> int:
    """An extent, if it is one; else what is usual."""
    return index if isinstance(index, int) else USUAL
