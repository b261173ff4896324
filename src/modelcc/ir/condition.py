"""Comparisons between index expressions: guards, tests of loops, demands on run-time sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from types import MappingProxyType
from typing import Literal

from modelcc.ir.index import Index, evaluate

Comparison = Literal["<", "<=", "==", "!=", ">", ">="]


@dataclass(frozen=True)
class Condition:
    """``left comparison right`` between index expressions."""

    left: Index
    comparison: Comparison
    right: Index

    def __str__(self) -> str:
        return f"{self.left} {self.comparison} {self.right}"

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it holds where symbols have these values."""
        return _COMPARE[self.comparison](evaluate(self.left, values), evaluate(self.right, values))


_COMPARE: Mapping[Comparison, Callable[[int, int], bool]] = MappingProxyType(
    {"<": lt, "<=": le, "==": eq, "!=": ne, ">": gt, ">=": ge}
)
