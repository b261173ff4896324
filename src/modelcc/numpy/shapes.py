"""Other shapes and orders of the same elements, under NumPy's names."""

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
    """All elements on one axis."""
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
    """With the axes ``source`` at the places ``destination``, the others in order."""
    return asarray(a).moveaxis(source, destination)


def squeeze(a: Any, axis: Axes = None) -> Tensor:
    """Without the axes ``axis``, None for all of extent 1."""
    return asarray(a).squeeze(axis)


def expand_dims(a: Any, axis: int | Sequence[int]) -> Tensor:
    """With new axes of extent 1 at the places ``axis`` of the result."""
    return asarray(a).expand_dims(axis)


def broadcast_to(a: Any, shape: Shape) -> Tensor:
    """Stretched to ``shape`` as in arithmetic."""
    return asarray(a).broadcast_to(shape)


def broadcast_shapes(*shapes: Sequence[Index]) -> tuple[Index, ...]:
    """The shape that all of them are stretched to in arithmetic."""
    return common(*shapes)


def broadcast_arrays(*args: Any) -> list[Tensor]:
    """All stretched to one shape."""
    given = [asarray(x) for x in args]
    shape = common(*[x.shape for x in given])
    return [x.broadcast_to(shape) for x in given]


def tile(a: Any, reps: Shape) -> Tensor:
    """The whole repeated so many times along each of the last axes."""
    return asarray(a).tile(reps)


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Tensor:
    """Each element so many times in a row, along ``axis`` or of all elements in order."""
    return asarray(a).repeat(repeats, axis)


def pad(array: Any, pad_width: Any, mode: Mode = "constant", constant_values: Any = 0) -> Tensor:
    """With so many more elements: a number, a pair, or a pair for each axis."""
    return asarray(array).pad(pad_width, mode, constant_values)


def flip(m: Any, axis: Axes = None) -> Tensor:
    """In reversed order along ``axis``."""
    return asarray(m).flip(axis)


def fliplr(m: Any) -> Tensor:
    """Columns in reversed order."""
    return asarray(m).flip(1)


def flipud(m: Any) -> Tensor:
    """Rows in reversed order."""
    return asarray(m).flip(0)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    """Turned ``k`` quarters from the first of ``axes`` to the second."""
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
    """Moved by ``shift`` along ``axis``; what leaves at one end comes in at the other."""
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
