"""What an entry of the table of ops gets to write with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from modelcc.exporters.stablehlo.builder import Hlo, HloBuilder
from modelcc.exporters.stablehlo.domain import Domain
from modelcc.ir.compute import Operand
from modelcc.ir.graph import Graph
from modelcc.ir.op import Builder
from modelcc.ir.types import TensorType

Types: TypeAlias = Sequence[TensorType]
Names: TypeAlias = Sequence[str]
"""Operands; "" is an absent one."""


class Writing(Builder, Protocol):
    """Values by name, and what writes more of them."""

    hlo: HloBuilder
    values: dict[str, Hlo]

    def domain(self) -> Domain:
        """Index expressions of named dimensions."""
        ...

    def computed(
        self, compute: Callable[..., Operand | tuple[Operand, ...]], inputs: Names
    ) -> tuple[Hlo, ...]:
        """What the stages of ``compute`` make of operands."""
        ...

    def body(self, graph: Graph, operands: Sequence[Hlo]) -> list[Hlo]:
        """The results of a graph in an op."""
        ...


Entry: TypeAlias = Callable[[Writing, Any, Names, Types], tuple[Hlo, ...] | None]
"""From the op, its operands and the types of its results to these; None if it is not in a form that
StableHLO has an operation for."""


def array(values: Sequence[int]) -> str:
    """An attribute of numbers."""
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"
