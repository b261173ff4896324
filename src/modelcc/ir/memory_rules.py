"""A target's requirements on the memory of tensors."""

from __future__ import annotations

from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""


@dataclass(frozen=True)
class MemoryRules:
    """Tensors in the arena start at multiples of ``alignment`` bytes, a power of two.

    With ``room`` the arena also has space for inputs and outputs, which the caller may use.  With
    ``overlap`` results may overwrite elements of an operand that have been read.
    """

    alignment: int = ALIGNMENT
    room: bool = False
    overlap: bool = False


DEFAULT_RULES = MemoryRules()
