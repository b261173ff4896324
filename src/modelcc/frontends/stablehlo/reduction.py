"""Reductions: those by one operation as an op, argmin and argmax patterns, and any others.

Others are reduced by halves: a region written for two elements is applied to all elements of one
half and of the other at once, as StableHLO leaves the order to the implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.stablehlo.call import HloCall, table
from modelcc.frontends.stablehlo.regions import extreme, single
from modelcc.frontends.stablehlo.structure import converted, integers, reshaped
from modelcc.ir.types import BOOL, F32, I32, Array, DType
from modelcc.ops import reduce as rd
from modelcc.ops.shape import Concat, Transpose
from modelcc.ops.slicing import Slice

Combine = Callable[[Sequence[str], Sequence[str]], Sequence[str]]
"""Applies a region to the values of one half and those of the other."""

_REDUCE: Mapping[str, type[rd.Reduction]] = MappingProxyType(
    {
        "add": rd.ReduceSum,
        "multiply": rd.ReduceProd,
        "maximum": rd.ReduceMax,
        "minimum": rd.ReduceMin,
    }
)
_BOOLS: Mapping[str, type[rd.Reduction]] = MappingProxyType(
    {
        **{f"{name}": rd.ReduceMax for name in ("or", "maximum", "add")},
        **{f"{name}": rd.ReduceMin for name in ("and", "minimum", "multiply")},
    }
)


def reduce(call: HloCall) -> Sequence[str]:
    axes = call.integers("dimensions")
    (region,) = call.op.regions
    count = len(call.inputs) // 2
    values, firsts = call.inputs[:count], call.inputs[count:]
    name = single(region)
    found = _known(name, call.dtype())
    if found is not None:
        return [_reduced(call, found, name, axes)]
    place = extreme(region) if count == 2 and len(axes) == 1 else ""
    if place and _counts(call, axes[0]):
        return _best(call, place, axes[0])

    def combined(left: Sequence[str], right: Sequence[str]) -> Sequence[str]:
        return call.inline(region, [*left, *right], lifted=True)

    results = by_halves(call, combined, values, axes)
    return call.inline(region, [*firsts, *results], lifted=True)


def _known(name: str, dtype: DType) -> type[rd.Reduction] | None:
    found = (_BOOLS if dtype == BOOL else _REDUCE).get(name)
    return None if found is None or dtype.bits < 8 else found


def _reduced(call: HloCall, op: type[rd.Reduction], name: str, axes: tuple[int, ...]) -> str:
    """By ``op``, combined with the initial value if it is not neutral."""
    dtype = call.dtype()
    x = call.input(0)
    narrow = dtype.is_float and dtype.bits < 16
    result = call.emit(op(axes, False), converted(call, x, F32) if narrow else x)
    result = converted(call, result, dtype)
    if is_neutral(call.known(1), name, dtype):
        return result
    (combined,) = call.inline(call.op.regions[0], [call.input(1), result], lifted=True)
    return combined


def is_neutral(first: Array | None, name: str, dtype: DType) -> bool:
    """Whether an initial value is neutral in a reduction by the operation ``name``."""
    if first is None:
        return False
    own = np.asarray(first).reshape(-1)[0]
    if name == "add" or name == "or":
        return bool(own == 0)
    if name == "multiply" or (name == "and" and dtype == BOOL):
        return bool(own == 1)
    if dtype == BOOL:
        return bool(own == (name == "minimum"))
    low, high = limits(dtype)
    return bool(own == (low if name == "maximum" else high))


def limits(dtype: DType) -> tuple[float, float]:
    """The minimum and the maximum value."""
    if dtype.is_float:
        return -np.inf, np.inf
    return integers(dtype)


def _counts(call: HloCall, axis: int) -> bool:
    """Whether the indices are 0, 1, … along ``axis``."""
    op = call.defining(call.op.operands[1])
    if op is not None and op.name == "stablehlo.broadcast_in_dim":
        line = tuple(op.attributes["broadcast_dimensions"]) == (axis,)
        op, axis = (call.defining(op.operands[0]), 0) if line else (None, axis)
    if op is None:
        return False
    named = op.name in ("stablehlo.iota", "stablehlo.dynamic_iota")
    return named and int(op.attributes["iota_dimension"]) == axis


def _best(call: HloCall, direction: str, axis: int) -> Sequence[str]:
    """The extrema, and their first indices."""
    greatest = direction == "GT"
    values = rd.ReduceMax if greatest else rd.ReduceMin
    places = rd.ArgMax if greatest else rd.ArgMin
    x, own = call.input(0), call.dtype()
    if own == BOOL or own.bits < 8:
        x = converted(call, x, I32)
    elif own.is_float and own.bits < 16:
        x = converted(call, x, F32)
    best = converted(call, call.emit(values((axis,), False), x), call.dtype())
    place = call.emit(places(axis, False), x)
    dtype = call.op.types[1].dtype
    return best, place if dtype is None else converted(call, place, dtype)


def by_halves(
    call: HloCall, combined: Combine, values: Sequence[str], axes: Sequence[int]
) -> Sequence[str]:
    """All elements along ``axes`` combined in order."""
    for axis in sorted(axes, reverse=True):
        values = [_moved_first(call, value, axis) for value in values]
        values = _halved(call, combined, values)
        values = [reshaped(call, v, call.type_of(v).shape[1:]) for v in values]
    return values


def _moved_first(call: HloCall, value: str, axis: int) -> str:
    rank = call.type_of(value).rank
    if axis == 0:
        return value
    order = (axis, *(a for a in range(rank) if a != axis))
    return call.emit(Transpose(order), value)


def _halved(call: HloCall, combined: Combine, values: Sequence[str]) -> Sequence[str]:
    """Elements along axis 0 combined pairwise until one is left."""
    count = number_of(call.type_of(values[0]).shape[0], "number of elements to combine")
    if count == 0:
        unsupported("it combines no elements")
    while count > 1:
        pairs = count // 2
        left = [_every_other(call, v, 0, pairs) for v in values]
        right = [_every_other(call, v, 1, pairs) for v in values]
        found = combined(left, right)
        if count % 2:
            rest = [_last(call, v) for v in values]
            found = [call.emit(Concat(0), c, r) for c, r in zip(found, rest, strict=True)]
        values, count = found, pairs + count % 2
    return values


def _every_other(call: HloCall, value: str, start: int, count: int) -> str:
    shape = call.type_of(value).shape
    none, single_step = (0,) * (len(shape) - 1), (1,) * (len(shape) - 1)
    return call.emit(Slice((start, *none), (count, *shape[1:]), (2, *single_step)), value)


def _last(call: HloCall, value: str) -> str:
    shape = call.type_of(value).shape
    none = (0,) * (len(shape) - 1)
    return call.emit(Slice((shape[0] - 1, *none), (1, *shape[1:]), (1,) * len(shape)), value)


REDUCTION = table(reduce=reduce)
