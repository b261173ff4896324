"""Kernels that are a product of two matrices alone, in the form of BLAS."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.index import (
    Bounds,
    Index,
    Range,
    Sym,
    compare,
    floordiv,
    mod,
    product,
    split_affine,
    substitute,
)
from modelcc.ir.tensor import Apply, Read
from modelcc.ir.types import DType
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.nest import LoopVar, Nest, linearise, merge_loops
from modelcc.schedule.schedule import ScheduleError


@dataclass(frozen=True)
class Matrix:
    """Elements of ``tensor`` from ``offset`` on; a stride is None along a side of length 1."""

    tensor: str
    offset: Index
    row: Index | None
    column: Index | None


@dataclass(frozen=True)
class PlainProduct:
    """``result[m, n] = sum of left[m, k] * right[k, n]``, for each ``counter`` in
    0 … count - 1, which offsets may mention (empty: there is one product)."""

    rows: Index
    columns: Index
    steps: Index
    left: Matrix
    right: Matrix
    result: Matrix
    dtype: DType
    counter: str
    count: Index
    dims: Mapping[str, Range]


def plain_product(kernel: CanonicalKernel) -> PlainProduct:
    """The product that ``kernel`` computes; :class:`ScheduleError` says why it is none."""
    nest, reads = _sum_of_products(kernel)
    sides = [v for v in nest.parallel if v.extent != 1]
    columns = next((v for v in reversed(sides) if _along(nest.store, v) == 1), None)
    right = next((r for r in reads if columns and _moves(r, columns)), reads[1])
    left = reads[1 - reads.index(right)]
    if columns is not None and _moves(left, columns):
        raise ScheduleError("both operands move along the rows of the result")
    others = [v for v in sides if v is not columns]
    rows = next((v for v in reversed(others) if not _moves(right, v) and _moves(left, v)), None)
    steps = next((v for v in nest.reduce if v.extent != 1), None)
    batch = [v for v in others if v is not rows]
    counter = batch[0].name if batch else ""
    place = dict.fromkeys((v.name for v in nest.variables), 0) | _places(batch, counter)

    def matrix(tensor: str, offset: Index, down: LoopVar | None, along: LoopVar | None) -> Matrix:
        first = substitute(offset, place)
        return Matrix(tensor, first, _stride(offset, down), _stride(offset, along))

    return PlainProduct(
        _extent(rows),
        _extent(columns),
        _extent(steps),
        matrix(left.tensor, left.indices[0], rows, steps),
        matrix(right.tensor, right.indices[0], steps, columns),
        matrix(nest.output, nest.store, rows, columns),
        left.dtype,
        counter,
        product(v.extent for v in batch),
        dict(kernel.dims),
    )


def stored_matrix(matrix: Matrix, rows: Index, columns: Index, dims: Bounds) -> tuple[bool, Index]:
    """Whether a matrix is column-major, and its leading dimension."""
    if matrix.column in (None, 1):
        transposed, leading, length = False, matrix.row, columns
    elif matrix.row in (None, 1):
        transposed, leading, length = True, matrix.column, rows
    else:
        raise ScheduleError(f"neither rows nor columns of {matrix.tensor} lie side by side")
    leading = length if leading is None else leading
    if not compare(leading, ">=", length, dims):
        raise ScheduleError(f"rows of {matrix.tensor} overlap")
    return transposed, leading


def positive_size(size: Index, dims: Bounds) -> Index:
    """``size``; :class:`ScheduleError` if it may be 0, which libraries refuse."""
    if not compare(size, ">=", 1, dims):
        raise ScheduleError(f"{size} may be 0: bound it, as in --dim n=1..4096")
    return size


def _sum_of_products(kernel: CanonicalKernel) -> tuple[Nest, list[Read]]:
    """The nest over flat offsets, and the two operands."""
    if len(kernel.stages) != 1:
        raise ScheduleError("the kernel computes more than a product")
    (stage,), types = kernel.stages, dict(kernel.types)
    (nest,) = merge_loops((linearise(stage, types, dict(kernel.dims), frozenset(), {}),))
    body = nest.body
    factors = body.args if isinstance(body, Apply) and body.function == "mul" else ()
    reads = [factor for factor in factors if isinstance(factor, Read)]
    alike = {types[nest.output].dtype, *(read.dtype for read in reads)}
    if nest.combine != "sum" or len(reads) != 2 or len(alike) != 1:
        raise ScheduleError("the kernel is no sum of products of two tensors")
    if any(halo != (0, 0) for halo in types[nest.output].physical.halo):
        raise ScheduleError("the result has a border")
    if sum(v.extent != 1 for v in nest.reduce) > 1:
        raise ScheduleError("the sum goes along several axes")
    names = tuple(v.name for v in nest.variables)
    for tensor, offset in ((nest.output, nest.store), *((r.tensor, r.indices[0]) for r in reads)):
        if split_affine(offset, names) is None:
            raise ScheduleError(f"{tensor} lies in blocks, not in rows")
    return nest, reads


def _along(offset: Index, loop: LoopVar) -> Index:
    affine = split_affine(offset, (loop.name,))
    return 0 if affine is None else affine[0][loop.name]


def _moves(read: Read, loop: LoopVar) -> bool:
    return _along(read.indices[0], loop) != 0


def _stride(offset: Index, loop: LoopVar | None) -> Index | None:
    return None if loop is None else _along(offset, loop)


def _extent(loop: LoopVar | None) -> Index:
    return 1 if loop is None else loop.extent


def _places(batch: list[LoopVar], counter: str) -> dict[str, Index]:
    """The indices of batch loops at a value of the counter, the last loop fastest."""
    places: dict[str, Index] = {}
    if not batch:
        return places
    left: Index = Sym(counter)
    for loop in reversed(batch):
        outermost = loop is batch[0]
        places[loop.name] = left if outermost else mod(left, loop.extent)
        left = floordiv(left, loop.extent)
    return places
