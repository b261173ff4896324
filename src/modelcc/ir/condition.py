"""Comparisons between index expressions: guards, tests of loops, constraints on run-time sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from types import MappingProxyType
from typing import Literal

from modelcc.ir.index import Index
from modelcc.ir.index_checked import NoValueError, evaluate_checked

Comparison = Literal["<", "<=", "==", "!=", ">", ">="]
Constraint = tuple[Index, Comparison, Index]
"""A relation that is not proved, and has to be checked."""

Constraints = tuple[Constraint, ...]

COMPARISONS: Mapping[str, Comparison] = MappingProxyType(
    {"<": "<", "<=": "<=", "==": "==", "!=": "!=", ">": ">", ">=": ">="}
)


@dataclass(frozen=True)
class Condition:
    """``left comparison right`` between index expressions."""

    left: Index
    comparison: Comparison
    right: Index

    def __str__(self) -> str:
        return f"{self.left} {self.comparison} {self.right}"

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it holds for these values of symbols; False if a side overflows 64 bits."""
        try:
            left, right = (evaluate_checked(side, values) for side in (self.left, self.right))
        except NoValueError:
            return False
        return _COMPARE[self.comparison](left, right)


_COMPARE: Mapping[Comparison, Callable[[int, int], bool]] = MappingProxyType(
    {"<": lt, "<=": le, "==": eq, "!=": ne, ">": gt, ">=": ge}
)
