"""Buffer arguments of routines at the loop level."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.index import Index


@dataclass(frozen=True)
class Argument:
    """Memory that begins at element ``offset`` of ``buffer``."""

    buffer: str
    offset: Index
