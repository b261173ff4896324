"""Ops with a better form in StableHLO than their stages, or without stages."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from modelcc.exporters.stablehlo.builder import Hlo
from modelcc.exporters.stablehlo.control import branch, loop
from modelcc.exporters.stablehlo.spectrum import fourier
from modelcc.exporters.stablehlo.totals import log_totals, totals
from modelcc.exporters.stablehlo.windows import convolution, greatest, mean, transposed
from modelcc.exporters.stablehlo.writing import Entry, Names, Types, Writing
from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.index import Index
from modelcc.ir.op import Op
from modelcc.ir.types import I64, TensorType
from modelcc.ops.control import At, If, Loop
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.cumulative import CumLogSumExp, CumMax, CumMin, CumProd, CumSum
from modelcc.ops.fourier import FourierTransform
from modelcc.ops.hardmax import Hardmax, RowHardmax
from modelcc.ops.pool import AveragePool, MaxPool
from modelcc.ops.runtime_size import ReadSize
from modelcc.ops.shape import Concat, Reshape
from modelcc.ops.top_k import TopK
from modelcc.ops.triangular_solve import TriangularSolve


def _reshape(at: Writing, op: Reshape, inputs: Names, types: Types) -> tuple[Hlo]:
    return (at.domain().reshape(at.values[inputs[0]], types[0].shape),)


def _concat(at: Writing, op: Concat, inputs: Names, types: Types) -> tuple[Hlo]:
    return (at.hlo.concatenate([at.values[n] for n in inputs], op.axis, types[0]),)


def _at(at: Writing, op: At, inputs: Names, types: Types) -> tuple[Hlo, ...] | None:
    """A slice of extent 1 that begins at a run-time index."""
    x, domain = at.values[inputs[0]], at.domain()
    if isinstance(op.position, int) or not x.type.is_static:
        return None
    starts = [domain.along(domain.index(op.position if a == op.axis else 0)).hlo
              for a in range(x.type.rank)]  # fmt: skip
    sizes = [1 if a == op.axis else e for a, e in enumerate(x.shape)]
    names = ", ".join(v.name for v in (x, *starts))
    cut = TensorType(tuple(sizes), x.dtype)
    found = at.hlo.convert_by(f"dynamic_slice {names}, sizes = {sizes}", cut, x, *starts)
    return (domain.reshape(found, types[0].shape),)


def _hardmax(at: Writing, op: RowHardmax, inputs: Names, types: Types) -> tuple[Hlo, ...]:
    return at.computed(Hardmax(op.axis).compute, inputs)


def _read_size(at: Writing, op: ReadSize, inputs: Names, types: Types) -> tuple[Hlo, ...]:
    if op.names:
        unsupported("it makes sizes of data, and shapes in StableHLO follow from those of operands")
    return (at.values[inputs[0]],)


def _top_k(at: Writing, op: TopK, inputs: Names, types: Types) -> tuple[Hlo, ...]:
    """All elements sorted with their indices, then sliced."""
    hlo, domain, x = at.hlo, at.domain(), at.values[inputs[0]]
    whole = TensorType(x.shape, I64)
    places = domain.counted(whole, op.axis)
    one = (TensorType((), x.dtype),) * 2 + (TensorType((), I64),) * 2
    region = hlo.block(one, lambda v: (_comes_first(at, op.largest, v[0], v[1]),))
    settings = {"dimension": f"{op.axis} : i64", "is_stable": "true"}
    found = hlo.generic("sort", (x, places), (x.type, whole), settings, region)
    return tuple(_first(at, v, op.axis, op.k) for v in found)


def _comes_first(at: Writing, largest: bool, a: Hlo, b: Hlo) -> Hlo:
    """NaN is the maximum."""
    hlo = at.hlo
    plain = hlo.compare("GT" if largest else "LT", a, b)
    if not a.dtype.is_float:
        return plain
    first, second = (a, b) if largest else (b, a)
    odd, even = hlo.compare("NE", first, first), hlo.compare("EQ", second, second)
    return hlo.elementwise("or", plain, hlo.elementwise("and", odd, even))


def _first(at: Writing, x: Hlo, axis: int, count: Index) -> Hlo:
    extents = tuple(count if a == axis else e for a, e in enumerate(x.shape))
    return at.domain().slice(x, (0,) * len(extents), extents, (1,) * len(extents))


def _triangular_solve(
    at: Writing, op: TriangularSolve, inputs: Names, types: Types
) -> tuple[Hlo, ...]:
    settings = {
        "left_side": "true",
        "lower": str(op.lower).lower(),
        "unit_diagonal": str(op.unit).lower(),
        "transpose_a": "#stablehlo<transpose NO_TRANSPOSE>",
    }
    operands = [at.values[name] for name in inputs]
    return at.hlo.generic("triangular_solve", operands, types, settings)


ENTRIES: Mapping[type[Op], Entry] = MappingProxyType(
    {
        Reshape: _reshape,
        Concat: _concat,
        At: _at,
        Conv: convolution,
        ConvTranspose: transposed,
        MaxPool: greatest,
        AveragePool: mean,
        **dict.fromkeys((CumSum, CumProd, CumMax, CumMin), totals),
        CumLogSumExp: log_totals,
        RowHardmax: _hardmax,
        TopK: _top_k,
        FourierTransform: fourier,
        TriangularSolve: _triangular_solve,
        If: branch,
        Loop: loop,
        ReadSize: _read_size,
    }
)
