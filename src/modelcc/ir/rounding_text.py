"""How much larger than those of plain sums rounding errors may be, in texts of programs."""

from __future__ import annotations

import re

from modelcc.ir.loop_parser import LoopScanner

_NUMBER = re.compile(r"\d+(\.\d+)?(e[+-]?\d+)?")


def rounding_text(rounding: float) -> str:
    """The clause that says so; none for plain sums."""
    return "" if rounding == 1.0 else f" rounding {rounding!r}"


def parse_rounding(scanner: LoopScanner) -> float:
    """The clause, if there is one."""
    return float(scanner.bare("number", _NUMBER)) if scanner.accept("rounding ") else 1.0
