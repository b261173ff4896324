"""Tensor-level items after scheduling: what program lowering consumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from modelcc.ir.graph import Constant
from modelcc.ir.index import Bounds, Index, Range
from modelcc.ir.loop import Function
from modelcc.ir.tensor import ReadSize, View
from modelcc.ir.types import TensorType


@dataclass(frozen=True)
class KernelCall:
    """One kernel as a loop function and the tensors bound to its buffer parameters, in order.

    ``sizes`` are the values of the function's size parameters.  Functions are named by their
    content's shape, not by tensor names, so that equal layers give equal functions.
    ``in_place`` lists (output, input) tensors that may share one buffer: same size, and every
    input element is read only to compute the output element at the same offset.
    ``partial`` names outputs of which this kernel writes a part only (concatenation).
    """

    function: Function
    arguments: tuple[str, ...]
    sizes: tuple[Index, ...] = ()
    outputs: tuple[str, ...] = ()
    in_place: tuple[tuple[str, str], ...] = ()
    partial: tuple[str, ...] = ()
    source: tuple[str, ...] = ()


ScheduledItem: TypeAlias = KernelCall | View | ReadSize


@dataclass(frozen=True)
class ScheduledProgram:
    """A tensor program whose kernels are scheduled, with its constants packed.

    ``types`` carries the physical layout of every tensor that is stored in memory.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    items: tuple[ScheduledItem, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Constant] = field(default_factory=dict[str, Constant])
    dims: Bounds = field(default_factory=dict[str, Range])

    @property
    def read_sizes(self) -> tuple[str, ...]:
        """Symbols that have no value before a step reads it, in order."""
        return tuple(n for i in self.items if isinstance(i, ReadSize) for n in i.symbols)
