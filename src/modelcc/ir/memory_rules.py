"""What a target wants of the memory that tensors lie in."""

from __future__ import annotations

from dataclasses import dataclass

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""


@dataclass(frozen=True)
class MemoryRules:
    """Tensors in the arena start at multiples of ``alignment`` bytes, a power of two.

    With ``room`` the arena has places for inputs and outputs, too, which the caller may use.  With
    ``overlap`` results may lie over what has been read of an operand.
    """

    alignment: int = ALIGNMENT
    room: bool = False
    overlap: bool = False


DEFAULT_RULES = MemoryRules()
