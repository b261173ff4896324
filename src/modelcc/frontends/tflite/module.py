"""What a TFLite file says, as plain data: subgraphs of operators on numbered tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.types import Array, DType

Option = bool | int | float | str | tuple[int, ...] | tuple[float, ...]
"""A field of an operator's options; what an enumeration names is its name."""


@dataclass(frozen=True)
class TfliteQuantization:
    """``real = scale * (number - zero)``; one of each, or one for each slice of ``axis``."""

    scales: Array
    zeros: Array
    axis: int

    @property
    def per_tensor(self) -> bool:
        """Whether one scale and zero point serve all elements."""
        return self.scales.size == 1

    @property
    def scale(self) -> float:
        """The only scale."""
        return float(self.scales[0])

    @property
    def zero(self) -> int:
        """The only zero point."""
        return int(self.zeros[0])


@dataclass(frozen=True)
class TfliteTensor:
    """A tensor: ``shape`` with -1 where the file leaves the extent open, or None if it says none.

    ``dtype`` is None for handles of variables (``type`` is what the file calls it), ``data`` what a
    constant holds.  A ``variable`` keeps its contents from call to call.
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
    """One operator: operands and results by number, -1 where an operand is absent.

    ``custom`` are the bytes of a custom operator's options, whose ``name`` is not a built-in one;
    ``intermediates`` are tensors that say how numbers inside of an operator stand for reals.
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
    """Operators in the order in which they run, and the tensors that they are about."""

    name: str
    tensors: tuple[TfliteTensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[TfliteOperator, ...]


@dataclass(frozen=True)
class TfliteSignature:
    """What callers of a subgraph call its inputs and outputs."""

    subgraph: int
    inputs: Mapping[int, str]
    outputs: Mapping[int, str]


@dataclass(frozen=True)
class TfliteModel:
    """A model: its main subgraph is the first one."""

    name: str
    subgraphs: tuple[TfliteSubgraph, ...]
    signatures: tuple[TfliteSignature, ...]
