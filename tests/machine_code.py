"""What NVIDIA's machine code does in its loops, counted."""

from __future__ import annotations

import re
from collections import Counter

_LABEL = re.compile(r"\s*(\.L_x_\d+):")
_JUMP = re.compile(r"BRA\S*\s.*`\((\.L_x_\d+)\)")
_INSTRUCTION = re.compile(r"\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_]+)([.\w]*)")

MMA_CYCLES = 8
"""Of one scheduler of sm_80 for an HMMA.16816 or an IMMA.16832: it multiplies and adds 256 pairs
of 16 bits in a cycle, the instruction has 16 * 8 * 16 of them (NVIDIA A100 whitepaper, table 3)."""


def instructions_of(sass: str) -> Counter[str]:
    """All instructions, by their names with what follows these."""
    found = map(_INSTRUCTION.match, sass.splitlines())
    return Counter(m[1] + m[2] for m in found if m)


def loops_of(sass: str) -> list[Counter[str]]:
    """Instructions of each loop, by their names."""
    lines = sass.splitlines()
    labels = {m[1]: n for n, line in enumerate(lines) if (m := _LABEL.match(line))}
    jumps = ((n, m[1]) for n, line in enumerate(lines) if (m := _JUMP.search(line)))
    loops = (lines[labels[to] : n + 1] for n, to in jumps if labels.get(to, n) < n)
    return [Counter(m[1] for line in body if (m := _INSTRUCTION.match(line))) for body in loops]


def matrix_part(loop: Counter[str], columns: int = 0) -> float:
    """The part of a loop's time that matrix units work, if nothing went on beside them: products
    take :data:`MMA_CYCLES` of a scheduler, every other instruction its cycle of issue.

    An HGMMA has 64 rows and ``columns``, of which a scheduler has a quarter: 16 * 16 for each
    column, of which sm_90a multiplies and adds 512 pairs of 16 bits in a cycle (NVIDIA H100
    whitepaper, table 2)."""
    count = loop["HMMA"] + loop["IMMA"] + loop["HGMMA"]
    products = (loop["HMMA"] + loop["IMMA"]) * MMA_CYCLES + loop["HGMMA"] * columns / 2
    return products / (products + loop.total() - count)
