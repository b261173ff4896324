"""Products by cuBLASLt instead of by our kernels, where a user prefers it.

The call's arguments are those of :mod:`modelcc.runtime.streams.cublaslt`: how sums are computed,
the epilogue, rows, columns and terms (K), the batch, and for each matrix its offset, its leading
dimension (of columns, if it is transposed), whether it is transposed, and its batch stride; then
the offset of the workspace, bytes of that, and the offsets of the bias and the addend, if there are
any.
"""

from __future__ import annotations

from modelcc.artifact.manifest import LibrarySpec
from modelcc.ir.index import Index, split_affine
from modelcc.ir.library import Address, Argument, ExternalCall
from modelcc.ir.loop import IndexOf
from modelcc.ir.types import BF16, F16, F32, I64
from modelcc.runtime.streams.cublaslt import (
    BIAS,
    COMPUTE_F32,
    COMPUTE_TF32,
    GELU,
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
from modelcc.targets.gpu.library_call import DeviceCall, workspace

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


_ACTIVATIONS = {"": 0, "relu": RELU, "gelu": GELU}


def product_call(kernel: CanonicalKernel, tf32: bool, most: int) -> DeviceCall | None:
    """The call that computes ``kernel``, or None; with ``tf32`` it rounds f32 operands.  Its
    workspace has at most ``most`` bytes.  :class:`ScheduleError` if only unbounded sizes prevent
    it."""
    split = product_and_tail(kernel)
    if split is None:
        return None
    product, tail = split
    try:
        found = plain_product(product)
        matrices = _matrices(found)
    except ScheduleError:
        return None
    types = dict(kernel.types)
    made = types[found.result.tensor].dtype
    if found.dtype not in (F32, F16, BF16) or made not in (found.dtype, F32):
        return None
    if tail.bias and types[tail.bias].dtype != made:
        return None
    if tail.added and types[tail.added] != types[found.result.tensor]:
        return None
    compute = COMPUTE_TF32 if tf32 and found.dtype == F32 else COMPUTE_F32
    epilogue = (BIAS if tail.bias else 0) | _ACTIVATIONS[tail.activation] or NO_EPILOGUE
    numbers = (IndexOf(n, I64) for n in (compute, epilogue, *_sizes(found)))
    behind = [Address(name) for name in (tail.bias, tail.added) if name]
    arguments = *numbers, *matrices, *workspace(kernel, most), *behind
    return DeviceCall(ExternalCall(CUBLASLT.name, "cublasLtMatmul", arguments))


def _sizes(found: PlainProduct) -> list[Index]:
    sizes = (found.rows, found.columns, found.steps, found.count)
    return [positive_size(n, found.dims) for n in sizes]


def _matrices(found: PlainProduct) -> tuple[Argument, ...]:
    matrices = (
        (found.left, found.rows, found.steps),
        (found.right, found.steps, found.columns),
        (found.result, found.rows, found.columns),
    )
    return tuple(a for matrix in matrices for a in _matrix(found, *matrix))


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
