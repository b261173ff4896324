"""How long stages take, roughly, to decide whether threads are worth their start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from modelcc.ir.index import Index
from modelcc.ir.scalar_tree import cost, reads
from modelcc.ir.tensor import Stage
from modelcc.ir.types import TensorType

OPERATIONS = 64.0
"""Vectorised operations per nanosecond of one core."""

BYTES = 64.0
"""Bytes per nanosecond that one core reads from its caches."""

UNKNOWN = 128
"""Assumed size of a symbolic extent."""


def nanoseconds(stages: Sequence[Stage], types: Mapping[str, TensorType]) -> float:
    """Estimated time of ``stages`` on one core: arithmetic, or the memory that they touch.

    ``types`` are those of tensors in memory; what stages hand on to each other is none.
    """
    operations = sum(
        _product(axis.extent for axis in (*stage.axes, *stage.reduce)) * max(1, cost(stage.body))
        for stage in stages
    )
    touched = {read.tensor for stage in stages for read in reads(stage.body)}
    touched |= {stage.output for stage in stages}
    size = sum(_bytes(types[name], stages) for name in touched if name in types)
    return max(operations / OPERATIONS, size / BYTES)


def _bytes(type_: TensorType, stages: Sequence[Stage]) -> float:
    """Bytes of a tensor, but no more than the stages have points: a gather reads few of them."""
    points = sum(_product(axis.extent for axis in (*s.axes, *s.reduce)) for s in stages)
    return min(_product(type_.shape), points) * type_.dtype.bits / 8


def _product(extents: Iterable[Index]) -> float:
    total = 1.0
    for extent in extents:
        total *= extent if isinstance(extent, int) else UNKNOWN
    return total
