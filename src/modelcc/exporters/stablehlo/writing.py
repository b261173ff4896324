"""The interface that export handlers of ops write with."""

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
"""Operands; "" if absent."""


class Writing(Builder, Protocol):
    """Values by name, and emission of more of them."""

    hlo: HloBuilder
    values: dict[str, Hlo]

    def domain(self) -> Domain:
        """Index expressions of named dimensions."""
        ...

    def computed(
        self, compute: Callable[..., Operand | tuple[Operand, ...]], inputs: Names
    ) -> tuple[Hlo, ...]:
        """The stages of ``compute`` applied to operands."""
        ...

    def body(self, graph: Graph, operands: Sequence[Hlo]) -> list[Hlo]:
        """The results of an op's sub-graph."""
        ...


Entry: TypeAlias = Callable[[Writing, Any, Names, Types], tuple[Hlo, ...] | None]
"""From the op, its operands and the types of its results to the results; None if StableHLO has no
operation for this form."""


def array(values: Sequence[int]) -> str:
    """An attribute with numbers."""
    return f"array<i64: {', '.join(map(str, values))}>" if values else "array<i64>"
