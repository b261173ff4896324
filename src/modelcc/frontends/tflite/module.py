"""The contents of a TFLite file as plain data: subgraphs of operators on numbered tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.types import Array, DType

Option = bool | int | float | str | tuple[int, ...] | tuple[float, ...]
"""A field of an operator's options; enumeration values are names."""


@dataclass(frozen=True)
class TfliteQuantization:
    """``real = scale * (number - zero)``; per tensor, or per slice of ``axis``."""

    scales: Array
    zeros: Array
    axis: int

    @property
    def per_tensor(self) -> bool:
        """Whether there is a single scale and zero point."""
        return self.scales.size == 1

    @property
    def scale(self) -> float:
        """The single scale."""
        return float(self.scales[0])

    @property
    def zero(self) -> int:
        """The single zero point."""
        return int(self.zeros[0])


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor: ``shape`` with -1 for dynamic extents, or None if unknown.

    ``dtype`` is None for handles of variables (``type`` is the file's name of it), ``data`` the
    contents of a constant.  A ``variable`` keeps its contents between calls.
    """

    name: str
    shape: tuple[int, ...] | None
    type: str
    dtype: DType | None
    quantization: TfliteQuantization | None = None
    data: Array | None = None
    variable: bool = False


@dataclass(frozen=True)
class TfliteOperator:
    """One operator: operands and results by number, -1 for an absent operand.

    ``custom`` are the bytes of a custom operator's options, whose ``name`` is not a built-in one;
    ``intermediates`` are tensors with the quantization of an operator's internal values.
    """

    index: int
    name: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, Option]
    custom: bytes | None = None
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True)
class TfliteSubgraph:
    """Operators in execution order, and their tensors."""

    name: str
    tensors: tuple[TfliteTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[TfliteOperator, ...]


@dataclass(frozen=True)
class TfliteSignature:
    """Callers' names of a subgraph's inputs and outputs."""

    subgraph: int
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]


@dataclass(frozen=True)
class TfliteModel:
    """A model: its main subgraph is the first one."""

    name: str
    subgraphs: tuple[TfliteSubgraph, ...]
    signatures: tuple[TfliteSignature, ...]
