"""Reshaping and reordering under NumPy's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modelcc.ir.index import Index
from modelcc.numpy.arrays import Shape, asarray
from modelcc.ops.padding import Mode
from modelcc.tensor.axes import Axes, common
from modelcc.tensor.tensor import Tensor


def reshape(a: Any, shape: Shape) -> Tensor:
    """The elements in row-major order in another shape; one extent may be -1."""
    return asarray(a).reshape(shape)


def ravel(a: Any) -> Tensor:
    """All elements flattened to one axis."""
    return asarray(a).ravel()


def transpose(a: Any, axes: Sequence[int] | None = None) -> Tensor:
    """Axis ``k`` of the result is axis ``axes[k]``; without any their order is reversed."""
    return asarray(a).transpose() if axes is None else asarray(a).transpose(axes)


permute_dims = transpose


def matrix_transpose(x: Any) -> Tensor:
    """With the last two axes exchanged."""
    return asarray(x).mT


def swapaxes(a: Any, axis1: int, axis2: int) -> Tensor:
    """With two axes exchanged."""
    return asarray(a).swapaxes(axis1, axis2)


def moveaxis(a: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """With the axes ``source`` moved to ``destination``, the others in order."""
    return asarray(a).moveaxis(source, destination)


def squeeze(a: Any, axis: Axes = None) -> Tensor:
    """Without the axes ``axis``, None for all of extent 1."""
    return asarray(a).squeeze(axis)


def expand_dims(a: Any, axis: int | Sequence[int]) -> Tensor:
    """With new axes of extent 1 at positions ``axis`` of the result."""
    return asarray(a).expand_dims(axis)


def broadcast_to(a: Any, shape: Shape) -> Tensor:
    """Broadcast to ``shape``."""
    return asarray(a).broadcast_to(shape)


def broadcast_shapes(*shapes: Sequence[Index]) -> tuple[Index, ...]:
    """The common shape by broadcasting."""
    return common(*shapes)


def broadcast_arrays(*args: Any) -> list[Tensor]:
    """All broadcast to the same shape."""
    given = [asarray(x) for x in args]
    shape = common(*[x.shape for x in given])
    return [x.broadcast_to(shape) for x in given]


def tile(a: Any, reps: Shape) -> Tensor:
    """The whole repeated ``reps`` times along each of the last axes."""
    return asarray(a).tile(reps)


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Tensor:
    """Each element repeated ``repeats`` times, along ``axis`` or of all elements flattened."""
    return asarray(a).repeat(repeats, axis)


def pad(array: Any, pad_width: Any, mode: Mode = "constant", constant_values: Any = 0) -> Tensor:
    """Padded by ``pad_width``: a number, a pair, or a pair per axis."""
    return asarray(array).pad(pad_width, mode, constant_values)


def flip(m: Any, axis: Axes = None) -> Tensor:
    """Reversed along ``axis``."""
    return asarray(m).flip(axis)


def fliplr(m: Any) -> Tensor:
    """Columns reversed."""
    return asarray(m).flip(1)


def flipud(m: Any) -> Tensor:
    """Rows reversed."""
    return asarray(m).flip(0)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """Rotated by ``k`` times 90 degrees from the first of ``axes`` to the second."""
    x = asarray(m)
    first, second = axes
    match k % 4:
        case 1:
            return x.flip(second).swapaxes(first, second)
        case 2:
            return x.flip(axes)
        case 3:
            return x.swapaxes(first, second).flip(second)
        case _:
            return x


def roll(a: Any, shift: int | Sequence[int], axis: Axes = None) -> Tensor:
    """Rotated by ``shift`` along ``axis``, cyclically."""
    return asarray(a).roll(shift, axis)


def triu(m: Any, k: int = 0) -> Tensor:
    """The upper triangle of each matrix, 0 below diagonal ``k``."""
    return asarray(m).triu(k)


def tril(m: Any, k: int = 0) -> Tensor:
    """The lower triangle of each matrix, 0 above diagonal ``k``."""
    return asarray(m).tril(k)


def shape(a: Any) -> tuple[Index, ...]:
    """Extents."""
    return asarray(a).shape


def ndim(a: Any) -> int:
    """The number of axes."""
    return asarray(a).ndim


def size(a: Any) -> Index:
    """The number of elements."""
    return asarray(a).size
