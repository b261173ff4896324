"""Sums of products: in which element type they are kept, and how their stages are built."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modelcc.ir.compute import Element, Operand, StageBuilder
from modelcc.ir.index import Index
from modelcc.ir.op import require
from modelcc.ir.scalar import Combine
from modelcc.ir.types import F32, Array, DType, dtype_of

Point = tuple[Index, ...]


def accumulator(dtype: DType) -> DType:
    """f32 for floats narrower than 32 bits, else ``dtype`` itself."""
    return F32 if dtype.is_float and dtype.bits < 32 else dtype


def widen(x: Array) -> Array:
    """``x`` in the accumulator of its dtype; no copy when it already is."""
    return x.astype(accumulator(dtype_of(x)).numpy, copy=False)


def combined(
    at: StageBuilder,
    shape: Sequence[Index],
    extents: Sequence[Index],
    combine: Combine,
    body: Callable[[Point, Point], Element],
) -> Operand:
    """``at.reduce`` without reduction axes of extent 1 (their index is 0)."""
    real = [e for e in extents if e != 1]
    if not real:
        return at.stage(shape, lambda o: body(o, (0,) * len(extents)))
    return at.reduce(shape, real, combine, lambda o, r: body(o, restore(extents, r)))


def restore(extents: Sequence[Index], indices: Sequence[Index]) -> Point:
    """One index per extent: 0 where it is 1, else the next of ``indices``."""
    rest = iter(indices)
    return tuple(0 if e == 1 else next(rest) for e in extents)


def rounded(at: StageBuilder, x: Operand, dtype: DType) -> Operand:
    """``x`` as ``dtype``, through one conversion stage if it has another."""
    return x if x.dtype == dtype else at.stage(x.shape, lambda o: x[o].cast(dtype))


def require_numeric(dtype: DType, op: str) -> None:
    """Refuse booleans, strings and complex numbers."""
    require(
        dtype.is_float or dtype.is_integer,
        f"{op} needs float or integer operands, not {dtype}",
        "cast the operand first",
    )


def require_float(dtype: DType, op: str) -> None:
    """Refuse everything but floats."""
    require(dtype.is_float, f"{op} needs float operands, not {dtype}", "cast the operand first")
