"""Values of named dimensions: from the shapes of arrays, into types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Bounds, Index, Sym, split_affine, substitute
from modelcc.ir.types import TensorType


def bind_dimensions(
    shapes: Iterable[tuple[str, TensorType, tuple[int, ...]]], dims: Bounds
) -> dict[str, int]:
    """Values of the named dimensions from ``(name, type, actual shape)`` of the inputs.

    A dimension that occurs only in an expression (``2*seq + 1``) is solved for where it is affine.
    :class:`ModelError` naming the input if ranks, extents or bounds do not agree.
    """
    pending: list[tuple[str, int, Index, int]] = []
    for name, type, shape in shapes:
        if len(shape) != type.rank:
            message = f"input {name!r} must be {type}, but the array has shape {list(shape)}"
            raise ModelError(message)
        extents = zip(type.shape, shape, strict=True)
        pending += [(name, axis, want, got) for axis, (want, got) in enumerate(extents)]
    values: dict[str, int] = {}
    for dimension in sorted(pending, key=lambda p: not isinstance(p[2], Sym)):
        _bind_extent(*dimension, values)
    for name, axis, want, got in pending:
        if substitute(want, values) != got:
            meaning = "" if isinstance(want, int) else f" (with {_listing(values)})"
            raise ModelError(f"input {name!r}, axis {axis}: expected {want}{meaning}, got {got}")
    _check_bounds(values, dims)
    return values


def _bind_extent(name: str, axis: int, want: Index, got: int, values: dict[str, int]) -> None:
    rest = substitute(want, values)
    if isinstance(rest, int) or len(rest.symbols) != 1:
        return
    (symbol,) = rest.symbols
    split = split_affine(rest, (symbol,))
    if split is None:
        return
    scale, offset = split[0][symbol], split[1]
    if not isinstance(scale, int) or not isinstance(offset, int) or (got - offset) % scale:
        raise ModelError(f"input {name!r}, axis {axis}: {got} is no value of {want}")
    values[symbol] = (got - offset) // scale


def _check_bounds(values: Mapping[str, int], dims: Bounds) -> None:
    for symbol, value in values.items():
        known = dims.get(symbol)
        if known is None:
            continue
        low = None if known.lo is None else substitute(known.lo, values)
        high = None if known.hi is None else substitute(known.hi, values)
        if (isinstance(low, int) and value < low) or (isinstance(high, int) and value > high):
            span = f"{'' if low is None else low}..{'' if high is None else high}"
            raise ModelError(f"dimension {symbol!r} is {value}, outside of {span}")


def _listing(values: Mapping[str, int]) -> str:
    return ", ".join(f"{n} = {v}" for n, v in values.items())


def bind_type(type: TensorType, values: Mapping[str, Index]) -> TensorType:
    """``type`` with the dimensions in ``values`` substituted."""
    if all(isinstance(d, int) for d in type.shape):
        return type
    return replace(type, shape=tuple(substitute(d, values) for d in type.shape))
