"""Products by cuBLASLt instead of by kernels of ours, where a user prefers it.

The call's arguments are those that :mod:`modelcc.runtime.cublaslt` takes: how sums are computed,
what follows, rows, columns and steps, how many products, and for each matrix where it begins, how
far apart its rows are (or columns, where it is transposed), whether it is, and how far apart
products are; then where the bias begins, if there is one.
"""

from __future__ import annotations

from modelcc.artifact.manifest import LibrarySpec
from modelcc.ir.index import Index, split_affine
from modelcc.ir.library import Address, Argument, ExternalCall
from modelcc.ir.loop import IndexOf
from modelcc.ir.types import BF16, F16, F32, I64
from modelcc.runtime.cublaslt import (
    BIAS,
    COMPUTE_F32,
    COMPUTE_TF32,
    NO_EPILOGUE,
    RELU,
    SIGNATURES,
)
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.plain_product import (
    Matrix,
    PlainProduct,
    plain_product,
    positive_size,
    stored_matrix,
)
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.cuda.product_tail import product_and_tail

CUBLASLT = LibrarySpec(
    "cublaslt",
    (
        "nvidia/cublas/lib/libcublasLt.so.12",
        "nvidia/cu13/lib/libcublasLt.so.13",
        "libcublasLt.so.13",
        "libcublasLt.so.12",
    ),
    symbols=tuple(SIGNATURES),
    package="nvidia-cublas-cu12",
)


def product_call(kernel: CanonicalKernel, tf32: bool) -> ExternalCall | None:
    """The call that computes ``kernel``, or None; with ``tf32`` it rounds operands of f32."""
    split = product_and_tail(kernel)
    if split is None:
        return None
    product, tail = split
    try:
        found = plain_product(product)
        arguments = _arguments(found)
    except ScheduleError:
        return None
    types = dict(kernel.types)
    made = types[found.result.tensor].dtype
    if found.dtype not in (F32, F16, BF16) or made not in (found.dtype, F32):
        return None
    if tail.bias and types[tail.bias].dtype != made:
        return None
    compute = COMPUTE_TF32 if tf32 and found.dtype == F32 else COMPUTE_F32
    epilogue = (BIAS if tail.bias else 0) | (RELU if tail.relu else 0) or NO_EPILOGUE
    kind = IndexOf(compute, I64), IndexOf(epilogue, I64)
    bias = (Address(tail.bias),) if tail.bias else ()
    return ExternalCall(CUBLASLT.name, "cublasLtMatmul", (*kind, *arguments, *bias))


def _arguments(found: PlainProduct) -> tuple[Argument, ...]:
    sizes = (found.rows, found.columns, found.steps, found.count)
    matrices = (
        (found.left, found.rows, found.steps),
        (found.right, found.steps, found.columns),
        (found.result, found.rows, found.columns),
    )
    numbers = [IndexOf(positive_size(n, found.dims), I64) for n in sizes]
    return (*numbers, *(a for matrix in matrices for a in _matrix(found, *matrix)))


def _matrix(
    found: PlainProduct, matrix: Matrix, rows: Index, columns: Index
) -> tuple[Argument, ...]:
    transposed, leading = stored_matrix(matrix, rows, columns, found.dims)
    if transposed and matrix is found.result:
        raise ScheduleError("neighbours in rows of the result are no neighbours in memory")
    counters = (found.counter,) if found.counter else ()
    split = split_affine(matrix.offset, counters)
    if split is None:
        raise ScheduleError("products are not equally far apart")
    apart, first = split
    numbers = (leading, int(transposed), apart.get(found.counter, 0))
    return Address(matrix.tensor, first), *(IndexOf(n, I64) for n in numbers)
