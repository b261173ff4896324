"""Libraries that kernels may call in place of loops, and their calls.

Matrix products are those of BLAS, by its C interface with integers of 32 bits (Dongarra et al., "A
set of level 3 basic linear algebra subprograms", 1990; cblas.h).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from modelcc.artifact.manifest import LibrarySpec
from modelcc.ir.index import Bounds, Index, compare
from modelcc.ir.library import Address, Argument, ExternalCall
from modelcc.ir.loop import Const, IndexOf
from modelcc.ir.types import F32, F64, I32
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.plain_product import Matrix, PlainProduct, plain_product, stored_matrix
from modelcc.schedule.schedule import LibraryCall, ScheduleError
from modelcc.targets.cpu.machine import CpuModel


@dataclass(frozen=True)
class Library:
    """A library's spec; its function ``tell`` has no arguments and returns words: its name, its
    version, and build options."""

    spec: LibrarySpec
    tell: str


LIBRARIES: Mapping[str, Library] = MappingProxyType(
    {
        "openblas": Library(
            LibrarySpec(
                "openblas",
                ("scipy_openblas32/lib/libscipy_openblas.so", "libopenblas.so.0"),
                prefixes=("", "scipy_"),
                # Kernels are called from our own threads, which share the work already.
                setup=(("openblas_set_num_threads", 1),),
                package="modelcc[blas]",
            ),
            "openblas_get_config",
        )
    }
)
"""By the name that linkers use."""

WIDE = "USE64BITINT"
"""The word that marks a library with 64-bit integers."""

GEMM = MappingProxyType({"cblas_sgemm": F32, "cblas_dgemm": F64})
"""Functions for products, and their dtypes."""

_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
_MOST = 1 << 31


def library_calls(kernel: CanonicalKernel, machine: CpuModel) -> Iterator[LibraryCall]:
    """Schedules of ``kernel`` by the machine's libraries."""
    for name in machine.libraries:
        for symbol in GEMM:
            schedule = LibraryCall(name, symbol)
            try:
                external_call(kernel, schedule, machine)
            except ScheduleError:
                continue
            yield schedule


def external_call(
    kernel: CanonicalKernel, schedule: LibraryCall, machine: CpuModel
) -> ExternalCall:
    """The call that computes ``kernel``; :class:`ScheduleError` if the library or its function
    cannot."""
    if schedule.name not in machine.libraries:
        hint = f"ask for it by --library {schedule.name}"
        raise ScheduleError(f"kernels may not call the library {schedule.name!r}; {hint}")
    if schedule.symbol not in GEMM:
        raise ScheduleError(f"{schedule.symbol!r} is none of {', '.join(GEMM)}")
    found, dtype = plain_product(kernel), GEMM[schedule.symbol]
    if found.dtype != dtype:
        raise ScheduleError(f"{schedule.symbol} is for {dtype}, not for {found.dtype}")
    return ExternalCall(schedule.name, schedule.symbol, _gemm(found), found.counter, found.count)


def _gemm(found: PlainProduct) -> tuple[Argument, ...]:
    """``?gemm(layout, transA, transB, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc)``."""
    rows, columns, steps = (_size(n, found.dims) for n in (found.rows, found.columns, found.steps))
    left, lda = _stored(found.left, found.rows, found.steps, found.dims)
    right, ldb = _stored(found.right, found.steps, found.columns, found.dims)
    stored, ldc = _stored(found.result, found.rows, found.columns, found.dims)
    if stored == _TRANSPOSED:
        raise ScheduleError("neighbours in rows of the result are no neighbours in memory")
    return (
        *(IndexOf(word, I32) for word in (_ROW_MAJOR, left, right)),
        *(rows, columns, steps, Const(1.0, found.dtype)),
        *(Address(found.left.tensor, found.left.offset), lda),
        *(Address(found.right.tensor, found.right.offset), ldb, Const(0.0, found.dtype)),
        *(Address(found.result.tensor, found.result.offset), ldc),
    )


def _stored(matrix: Matrix, rows: Index, columns: Index, dims: Bounds) -> tuple[int, IndexOf]:
    transposed, leading = stored_matrix(matrix, rows, columns, dims)
    return _TRANSPOSED if transposed else _PLAIN, _size(leading, dims)


def _size(size: Index, dims: Bounds) -> IndexOf:
    """A size for BLAS: 32 bits, and not 0."""
    if not (compare(size, ">=", 1, dims) and compare(size, "<", _MOST, dims)):
        raise ScheduleError(f"{size} may be 0, or 2^31 and more: bound it, as in --dim n=1..4096")
    return IndexOf(size, I32)
