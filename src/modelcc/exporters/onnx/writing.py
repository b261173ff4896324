"""The interface that export handlers of ops write with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from modelcc.exporters.onnx.builder import OnnxBuilder, OnnxValue
from modelcc.exporters.onnx.sizes import OnnxSizes
from modelcc.exporters.onnx.types import element_type
from modelcc.ir.graph import Graph
from modelcc.ir.index import Index
from modelcc.ir.op import Op
from modelcc.ir.types import I64, Array, DType, TensorType


class Bodies(Protocol):
    """Exports sub-graphs of ops."""

    def body(self, graph: Graph, operands: Sequence[OnnxValue]) -> list[OnnxValue]:
        """The results of a graph on ``operands``, inlined into the innermost graph."""
        ...


@dataclass(frozen=True)
class OnnxWriting:
    """Operands of an op, their types and those of its results, and emission of nodes.

    Absent operands are None.
    """

    build: OnnxBuilder
    bodies: Bodies
    inputs: tuple[OnnxValue | None, ...]
    given: tuple[TensorType | None, ...]
    results: tuple[TensorType, ...]

    @property
    def sizes(self) -> OnnxSizes:
        """Named sizes as values."""
        return OnnxSizes(self.build)

    def input(self, number: int = 0) -> OnnxValue:
        """A present operand."""
        value = self.inputs[number]
        assert value is not None
        return value

    def type(self, number: int = 0) -> TensorType:
        """The type of a present operand."""
        type = self.given[number]
        assert type is not None
        return type

    @property
    def shape(self) -> tuple[Index, ...]:
        """The shape of the first operand."""
        return self.type().shape

    def has(self, number: int) -> bool:
        """Whether operand ``number`` is present."""
        return number < len(self.inputs) and self.inputs[number] is not None

    def node(
        self, operator: str, *inputs: OnnxValue | None, dtype: DType | None = None, **settings: Any
    ) -> OnnxValue:
        """The single result of an operator, by default with the first operand's element type."""
        return self.build.node(operator, *inputs, dtype=dtype, **settings)

    def direct(self, operator: str, **settings: Any) -> tuple[OnnxValue, ...]:
        """The op as one operator on the same operands."""
        dtypes = [t.dtype for t in self.results]
        return self.build.node_of(operator, self.inputs, dtypes, **settings)

    def vector(self, values: Sequence[Index]) -> OnnxValue:
        """Integers or sizes as a vector."""
        return self.sizes.vector(values)

    def constant(self, value: Array | float, dtype: DType) -> OnnxValue:
        """A constant."""
        return self.build.constant(np.asarray(value, dtype.numpy), dtype)

    def cast(self, x: OnnxValue, dtype: DType) -> OnnxValue:
        """Converts the element type."""
        if x.dtype == dtype:
            return x
        return self.node("Cast", x, dtype=dtype, to=element_type(dtype))

    def indices(self, number: int) -> OnnxValue:
        """An index operand, in i64."""
        return self.cast(self.input(number), I64)

    def reshape(self, x: OnnxValue, shape: Sequence[Index]) -> OnnxValue:
        """The same elements in another shape."""
        return self.node("Reshape", x, self.vector(shape), allowzero=1)

    def expand(self, x: OnnxValue, shape: Sequence[Index]) -> OnnxValue:
        """Broadcast to a shape."""
        return self.node("Expand", x, self.vector(shape))

    def transpose(self, x: OnnxValue, perm: Sequence[int]) -> OnnxValue:
        """Axis ``k`` of the result is axis ``perm[k]``."""
        plain = list(perm) == list(range(len(perm)))
        return x if plain else self.node("Transpose", x, perm=list(perm))

    def full(self, value: float, shape: Sequence[Index], dtype: DType) -> OnnxValue:
        """A constant fill."""
        return self.expand(self.build.number(value, dtype), shape)

    def count(self, extent: Index) -> OnnxValue:
        """0, 1, … below ``extent``."""
        start, step = self.build.number(0, I64), self.build.number(1, I64)
        return self.node("Range", start, self.sizes.scalar(extent), step)

    def pad(
        self, x: OnnxValue, before: Sequence[Index], after: Sequence[Index], value: float = 0
    ) -> OnnxValue:
        """``x`` padded, or cropped where amounts are negative."""
        if all(amount == 0 for amount in (*before, *after)):
            return x
        fill = self.build.number(value, x.dtype)
        return self.node("Pad", x, self.vector((*before, *after)), fill, mode="constant")


Settings: TypeAlias = dict[str, Any]
"""Attributes of an operator."""

Found: TypeAlias = "OnnxValue | tuple[OnnxValue, ...] | None"
Entry: TypeAlias = Callable[[OnnxWriting, Any], Found]
"""From the op to its results; None if ONNX has no operator for this form."""


def settings_of(op: Op, **names: str | None) -> Settings:
    """Attributes in ONNX's form, some under other names; None: omitted."""
    given = {names.get(k, k): v for k, v in op.attributes().items()}
    return {k: int(v) if isinstance(v, bool) else v for k, v in given.items() if k}
