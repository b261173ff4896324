"""Parts of a graph value, its elements in another order, shape or type."""

from __future__ import annotations

from modelcc.ir.index import Index
from modelcc.ir.types import DType
from modelcc.ops.arithmetic import Cast, Value, of
from modelcc.ops.shape import Reshape, Transpose
from modelcc.ops.slicing import Slice


def part(x: Value, axis: int, start: Index, count: Index, step: Index = 1) -> Value:
    """``count`` elements of ``x`` along ``axis``, every ``step``-th from ``start`` on."""
    shape = x.type.shape
    axis %= len(shape)
    if step == 1 and shape[axis] == count:
        return x
    starts = tuple(start if a == axis else 0 for a in range(len(shape)))
    counts = tuple(count if a == axis else e for a, e in enumerate(shape))
    steps = tuple(step if a == axis else 1 for a in range(len(shape)))
    return of(Slice(starts, counts, steps), x)


def reshaped(x: Value, *shape: Index) -> Value:
    """The elements of ``x`` in row-major order in another shape."""
    return x if x.type.shape == shape else of(Reshape(shape), x)


def permuted(x: Value, *axes: int) -> Value:
    """``x`` with its axes in another order."""
    return of(Transpose(axes), x)


def cast(x: Value, dtype: DType) -> Value:
    """``x`` as ``dtype``."""
    return x if x.type.dtype == dtype else of(Cast(dtype), x)
