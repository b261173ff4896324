"""Primitives for formulas of layers: reshapes, reductions and selections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, product
from modelcc.ir.op import Op
from modelcc.ops.broadcast import Expand, ReduceSum, Reshape
from modelcc.ops.comparison import Where
from modelcc.ops.generate import Full
from modelcc.ops.reduce import ReduceMean
from modelcc.ops.shape import Concat, Transpose
from modelcc.ops.slicing import Slice
from modelcc.tensor.lazy import FREE, RECORDED, Alias, callers_line
from modelcc.tensor.tensor import Tensor

Numbers = int | Sequence[int]
"""One number for all spatial axes, or one each."""


def of(op: Op, *xs: Tensor | None) -> Tensor:
    """The single result of ``op``."""
    first = next(x for x in xs if x is not None)
    return first.result(op, *xs)


def reshaped(x: Tensor, *shape: Index) -> Tensor:
    """The same elements in another shape."""
    return x if tuple(x.shape) == shape else of(Reshape(shape), x)


def permuted(x: Tensor, *axes: int) -> Tensor:
    """Axes in another order."""
    return x if axes == tuple(range(x.ndim)) else of(Transpose(axes), x)


def swapped(x: Tensor, a: int, b: int) -> Tensor:
    """Two axes exchanged; negative ones count from the end."""
    axes = list(range(x.ndim))
    axes[a], axes[b] = axes[b], axes[a]
    return permuted(x, *axes)


def joined(xs: Sequence[Tensor], axis: int) -> Tensor:
    """Concatenated along an axis."""
    return xs[0] if len(xs) == 1 else of(Concat(axis), *xs)


def part(x: Tensor, axis: int, start: Index, extent: Index) -> Tensor:
    """``extent`` elements along ``axis`` from ``start`` on."""
    starts = tuple(start if a == axis else 0 for a in range(x.ndim))
    extents = tuple(extent if a == axis else e for a, e in enumerate(x.shape))
    return of(Slice(starts, extents, (1,) * x.ndim), x)


def parts(x: Tensor, axis: int, count: int) -> list[Tensor]:
    """``count`` equal parts along ``axis``."""
    size = number(x.shape[axis], "a split axis") // count
    return [part(x, axis, i * size, size) for i in range(count)]


def expanded(x: Tensor, *shape: Index) -> Tensor:
    """Broadcast to ``shape``."""
    return x if tuple(x.shape) == shape else of(Expand(shape), x)


def summed(x: Tensor, *axes: int, keepdims: bool = False) -> Tensor:
    """The sum over ``axes``, by default all."""
    return of(ReduceSum(axes or tuple(range(x.ndim)), keepdims), x)


def averaged(x: Tensor, *axes: int, keepdims: bool = False) -> Tensor:
    """The mean over ``axes``, by default all."""
    return of(ReduceMean(axes or tuple(range(x.ndim)), keepdims), x)


def where(condition: Tensor, a: Tensor | float, b: Tensor | float) -> Tensor:
    """``a`` where ``condition`` holds, else ``b``; numbers take the type of the other one."""
    model = a if isinstance(a, Tensor) else b
    assert isinstance(model, Tensor)
    return of(Where(), condition, _lifted(model, a), _lifted(model, b))


def _lifted(model: Tensor, value: Tensor | float) -> Tensor:
    return value if isinstance(value, Tensor) else model.of_number(value, model.dtype)


def filled(x: Tensor, value: float, *shape: Index) -> Tensor:
    """``value`` in the dtype of ``x``."""
    return x.result(Full(shape, value, x.dtype))


def detached(x: Tensor) -> Tensor:
    """The same values, detached from gradients."""
    return Tensor.made(Alias(), (x,), x.type, FREE, x.held) if x.phase == RECORDED else x


def axis_of(x: Tensor, dim: int) -> int:
    """A nonnegative axis; :class:`ModelError` if there is none."""
    if not -x.ndim <= dim < x.ndim:
        raise ModelError(f"axis {dim} of {x.type}, which has {x.ndim} axes", callers_line())
    return dim % x.ndim


def per_axis(numbers: Numbers, rank: int, what: str) -> tuple[int, ...]:
    """One number per spatial axis."""
    if isinstance(numbers, int | np.integer):
        return (int(numbers),) * rank
    given = tuple(int(n) for n in numbers)
    if len(given) == 1:
        return given * rank
    if len(given) != rank:
        raise ModelError(f"{what} is {list(given)}, and there are {rank} spatial axes",
                         callers_line(), "give one number, or one for each")  # fmt: skip
    return given


def number(extent: Index, what: str) -> int:
    """An extent that must be static; :class:`ModelError` if symbolic."""
    if not isinstance(extent, int):
        raise ModelError(f"{what} must be known, not {extent}", callers_line(),
                         "give this input a number for this extent")  # fmt: skip
    return extent


def count(x: Tensor) -> Index:
    """The number of elements of ``x``."""
    return product(x.shape)


def batched(op: Op, x: Tensor, rank: int, *rest: Tensor | None) -> Tensor:
    """``op`` on ``[N, C, *S]`` with ``rank`` spatial axes, or on one image ``[C, *S]``."""
    if x.ndim == rank + 2:
        return of(op, x, *rest)
    if x.ndim != rank + 1:
        shapes = f"[batch, channels, {rank} spatial axes], or without the batch"
        raise ModelError(f"{type(op).__name__} needs {shapes}, not {x.type}", callers_line())
    y = of(op, reshaped(x, 1, *x.shape), *rest)
    return reshaped(y, *y.shape[1:])


def as_tensor(value: Any) -> Tensor:
    """A tensor, or converted to one."""
    return Tensor(value)
