"""Rows of images that a kernel reads for a row of its result.

A *row* is a slice of a tensor at one index of one of its dimensions.  A convolution of three rows
reads ``row - 1 … row + 1``, and beyond the ends of the image a constant: the *pad*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Range, Sym, bounds_of, coefficient, substitute, symbols
from modelcc.ir.scalar_tree import own_indices, reads, transform, walk
from modelcc.ir.tensor import (
    Apply,
    Axis,
    Cast,
    Guard,
    IndexValue,
    Kernel,
    Linear,
    Number,
    Read,
    Scalar,
    Stage,
)
from modelcc.ir.types import TensorType


@dataclass(frozen=True)
class RowWindow:
    """For row ``r`` of a result rows ``scale*r + first`` to ``scale*r + last`` of ``tensor`` are
    read, along dimension ``dim``; ``pad`` is the value beyond its ends (None: never read)."""

    tensor: str
    dim: int
    scale: int
    first: int
    last: int
    pad: float | int | bool | None

    def joined(self, other: RowWindow) -> RowWindow:
        """The union of two windows of one tensor; :class:`NoRowsError` if they are incompatible."""
        same = self.dim == other.dim and self.scale == other.scale
        pads = {p for p in (self.pad, other.pad) if p is not None}
        if not same or len(pads) > 1:
            raise NoRowsError
        first, last = min(self.first, other.first), max(self.last, other.last)
        return RowWindow(self.tensor, self.dim, self.scale, first, last, next(iter(pads), None))


@dataclass(frozen=True)
class RowKernel:
    """A kernel that computes its one result row by row, ``extent`` of them along ``dim``.

    Its ``stages`` read rows beyond the ends of images without guards; ``axes`` are those along
    rows, stage by stage, ``inner`` the row dimensions of tensors within the kernel.
    """

    kernel: Kernel
    dim: int
    extent: int
    stages: tuple[Stage, ...]
    axes: tuple[str, ...]
    inner: Mapping[str, int]
    windows: tuple[RowWindow, ...]

    @property
    def output(self) -> str:
        """The result."""
        return self.kernel.outputs[0]


@dataclass(frozen=True)
class RowSum:
    """A kernel whose first stage sums all rows of one image, one for each ``axis``."""

    kernel: Kernel
    axis: str
    window: RowWindow
    extent: int


class NoRowsError(Exception):
    """A kernel cannot be computed by rows."""


def row_kernel(kernel: Kernel, dim: int, types: Mapping[str, TensorType]) -> RowKernel:
    """``kernel`` by rows along dimension ``dim`` of its result; :class:`NoRowsError` if it does
    not compute these one by one."""
    final = kernel.stages[-1]
    made = {stage.output for stage in kernel.stages}
    if kernel.outputs != (final.output,) or len(made) < len(kernel.stages):
        raise NoRowsError
    inner = {final.output: dim}
    windows: dict[str, RowWindow] = {}
    stages: list[Stage] = []
    axes: list[str] = []
    for stage in reversed(kernel.stages):
        axis = _row_axis(stage, inner)
        for window in _windows(stage, axis, made, inner, types):
            known = windows.get(window.tensor)
            windows[window.tensor] = window if known is None else known.joined(window)
        stages.insert(0, replace(stage, body=_without_borders(stage, axis, types)))
        axes.insert(0, axis)
    extent = types[final.output].shape[dim]
    if not isinstance(extent, int):
        raise NoRowsError
    found = tuple(windows.values())
    return RowKernel(kernel, dim, extent, tuple(stages), tuple(axes), inner, found)


def row_sum(kernel: Kernel, types: Mapping[str, TensorType]) -> RowSum:
    """``kernel`` as one that sums rows of integers first; :class:`NoRowsError` if it is none."""
    stage = kernel.stages[0]
    read = reads(stage.body)
    if stage.combine != "sum" or stage.body.dtype.is_float or len(read) != 1:
        raise NoRowsError
    if stage.output in kernel.outputs or any(
        isinstance(n, Guard | IndexValue) for n in walk(stage.body)
    ):
        raise NoRowsError
    (one,) = read
    shape = types[one.tensor].shape
    for dim, index in enumerate(one.indices):
        axis = next((a for a in stage.reduce if index == Sym(a.name)), None)
        if axis is not None and axis.extent == shape[dim] and isinstance(axis.extent, int):
            others = [i for n, i in enumerate(one.indices) if n != dim]
            if not any(axis.name in symbols(i) for i in others):
                window = RowWindow(one.tensor, dim, 1, 0, 0, None)
                return RowSum(kernel, axis.name, window, axis.extent)
    raise NoRowsError


def _row_axis(stage: Stage, inner: Mapping[str, int]) -> str:
    """The axis along the rows that a stage writes."""
    if stage.output not in inner:
        raise NoRowsError
    index = stage.write[inner[stage.output]]
    others = [i for n, i in enumerate(stage.write) if n != inner[stage.output]]
    if not isinstance(index, Sym) or any(index.name in symbols(i) for i in others):
        raise NoRowsError
    if not all(isinstance(a.extent, int) for a in (*stage.axes, *stage.reduce)):
        raise NoRowsError
    return index.name


def _windows(
    stage: Stage, axis: str, made: set[str], inner: dict[str, int], types: Mapping[str, TensorType]
) -> Iterator[RowWindow]:
    """The windows of a stage's reads of images; records the row dimensions of inner tensors."""
    for node in walk(stage.body):
        if isinstance(node, IndexValue | Linear) and any(
            axis in symbols(i) for i in own_indices(node)
        ):
            raise NoRowsError
    pads = _pads(stage, axis, types)
    for read in reads(stage.body):
        dims = [n for n, index in enumerate(read.indices) if axis in symbols(index)]
        if read.tensor in made:
            if len(dims) != 1 or read.indices[dims[0]] != Sym(axis):
                raise NoRowsError
            if inner.setdefault(read.tensor, dims[0]) != dims[0]:
                raise NoRowsError
        elif dims:
            yield _window(read, dims, axis, stage, pads)


def _window(
    read: Read, dims: list[int], axis: str, stage: Stage, pads: Mapping[Read, float | int | bool]
) -> RowWindow:
    index = read.indices[dims[0]]
    scale = coefficient(index, axis)
    found = bounds_of(substitute(index, {axis: 0}), _ranges(stage))
    first, last = found.lo, found.hi
    if len(dims) != 1 or not isinstance(scale, int) or scale < 1:
        raise NoRowsError
    if not isinstance(first, int) or not isinstance(last, int):
        raise NoRowsError
    return RowWindow(read.tensor, dims[0], scale, first, last, pads.get(read))


def _ranges(stage: Stage) -> dict[str, Range]:
    return {a.name: Range(0, a.extent - 1) for a in (*stage.axes, *stage.reduce)}


def _pads(
    stage: Stage, axis: str, types: Mapping[str, TensorType]
) -> dict[Read, float | int | bool]:
    """Values of reads beyond the ends of an image's rows."""
    found: dict[Read, float | int | bool] = {}
    for node in walk(stage.body):
        if isinstance(node, Guard) and _of_rows(node, axis):
            read, pad = _border(node, axis, types)
            if found.setdefault(read, pad) != pad:
                raise NoRowsError
    return found


def _without_borders(stage: Stage, axis: str, types: Mapping[str, TensorType]) -> Scalar:
    """The body of a stage without guards of rows."""

    def visit(node: Scalar) -> Scalar:
        if not isinstance(node, Guard) or not _of_rows(node, axis):
            return node
        _border(node, axis, types)
        left = tuple(c for c in node.conditions if not _mentions(c, axis))
        return replace(node, conditions=left) if left else node.inside

    return transform(stage.body, visit)


def _mentions(condition: Condition, axis: str) -> bool:
    return axis in symbols(condition.left) | symbols(condition.right)


def _of_rows(guard: Guard, axis: str) -> bool:
    return any(_mentions(c, axis) for c in guard.conditions)


def _border(
    guard: Guard, axis: str, types: Mapping[str, TensorType]
) -> tuple[Read, float | int | bool]:
    """The read that a guard keeps within an image's rows, and its value outside."""
    found = reads(guard.inside)
    if len(found) != 1 or not isinstance(guard.outside, Number):
        raise NoRowsError
    (read,) = found
    dims = [n for n, index in enumerate(read.indices) if axis in symbols(index)]
    if len(dims) != 1:
        raise NoRowsError
    index, extent = read.indices[dims[0]], types[read.tensor].shape[dims[0]]
    for condition in guard.conditions:
        if _mentions(condition, axis) and not _keeps_within(condition, index, extent):
            raise NoRowsError
    pad = _pad(guard.inside, guard.outside.value)
    if not np.can_cast(np.min_scalar_type(pad), read.dtype.numpy, "same_kind"):
        raise NoRowsError
    return read, pad


def _keeps_within(condition: Condition, index: Index, extent: Index) -> bool:
    apart = condition.left - condition.right
    match condition.comparison:
        case "<":
            return apart == index - extent
        case "<=":
            return apart == 0 - index
        case ">=":
            return apart == index
        case ">":
            return apart == extent - index
        case _:
            return False


def _pad(inside: Scalar, outside: float | int | bool) -> float | int | bool:
    """The value of a read for which ``inside`` equals ``outside``."""
    match inside:
        case Read():
            return outside
        case Cast(value):
            return _pad(value, outside)
        case Apply("sub", (value, Number(zero)), _):
            return _pad(value, outside + zero)
        case _:
            raise NoRowsError


def with_extent(axes: tuple[Axis, ...], name: str, extent: int) -> tuple[Axis, ...]:
    """``axes`` with another extent for one of them."""
    return tuple(replace(a, extent=extent) if a.name == name else a for a in axes)
