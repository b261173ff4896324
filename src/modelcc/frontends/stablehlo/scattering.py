"""Scatters with general dimension numbers: updates out of bounds are skipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.parts import joined
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.frontends.stablehlo.call import HloCall, table
from modelcc.frontends.stablehlo.places import (
    IndexNumbers,
    SlicePlaces,
    greatest,
    index_numbers,
    places_of,
    with_windows,
)
from modelcc.frontends.stablehlo.reduction import limits
from modelcc.frontends.stablehlo.regions import spelled
from modelcc.frontends.stablehlo.structure import combinable, converted, reshaped, transposed
from modelcc.ir.index import Index, compare
from modelcc.ir.types import BOOL, I64, Array, DType
from modelcc.ops import elementwise as ew
from modelcc.ops.broadcast import Expand
from modelcc.ops.gather import ScatterND
from modelcc.ops.padding import Pad
from modelcc.ops.reduce import ReduceMin
from modelcc.ops.runtime_index import Combination
from modelcc.ops.slicing import Slice

_COMBINATIONS: Mapping[str, Combination] = MappingProxyType(
    {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}
)
_OF_BOOLS: Mapping[str, Combination] = MappingProxyType(
    {"add": "max", "or": "max", "maximum": "max", "multiply": "min", "and": "min", "minimum": "min"}
)


def _numbers(call: HloCall) -> IndexNumbers:
    return index_numbers(
        call, "scatter_dimension_numbers", "update_window_dims", "inserted_window_dims",
        ("input_batching_dims", "scatter_indices_batching_dims"), "scattered_dims_to_operand_dims",
    )  # fmt: skip


def scatter(call: HloCall) -> str:
    if len(call.inputs) != 3:
        unsupported("several operands")
    (text,) = spelled(call.op.regions[0])
    own = call.dtype()
    name, _, operands = text.partition("(")
    found = (_OF_BOOLS if own == BOOL else _COMBINATIONS).get(name)
    reduction: Combination | None = "none" if text == "a1" else found
    if reduction is None or (text != "a1" and operands not in ("a0,a1)", "a1,a0)")):
        unsupported(f"a region that is {text}")
    dtype = combinable(own)
    x, updates = (converted(call, call.input(n), dtype) for n in (0, 2))
    call = call.with_inputs(x, call.input(1), updates)
    return converted(call, _scattered(call, _numbers(call), reduction), own)


def _scattered(call: HloCall, numbers: IndexNumbers, reduction: Combination) -> str:
    """By ``ScatterND`` with the indexed axes first."""
    rank, given = call.rank(), call.shape(2)
    shown = [a for a in range(rank) if a not in numbers.hidden]
    windows = dict(zip(shown, numbers.windows, strict=True))
    sizes = [given[windows[a]] if a in windows else 1 for a in range(rank)]
    places = _with_partial(call, places_of(call, numbers), sizes)
    lead = [w for w in range(len(given)) if w not in numbers.windows]
    updates = transposed(call, call.input(2), (*lead, *numbers.windows))
    updates = reshaped(call, updates, (*places.batch, *sizes))
    wide, rest, count = places.wide(sizes), places.rest(rank), len(lead)
    single = [a for a in range(rank) if a not in (*wide, *rest)]
    updates = transposed(call, updates, (*range(count), *(count + a for a in (
        *wide, *rest, *single))))  # fmt: skip
    updates = reshaped(call, updates, (*places.batch, *(sizes[a] for a in (*wide, *rest))))
    return _written(call, places, sizes, updates, reduction)


def _with_partial(call: HloCall, places: SlicePlaces, sizes: Sequence[Index]) -> SlicePlaces:
    """Axes that updates do not cover get an index of 0 as well; at least one axis has one."""
    shape = call.shape()
    rest = places.rest(len(shape))
    partial = [a for a in rest if compare(sizes[a], "==", shape[a], call.bounds) is not True]
    if not places.axes and not partial:
        partial = list(rest[:1])
    if not partial:
        return places
    zeros = call.emit(Expand((*places.batch, len(partial))), call.constant(np.zeros((), np.int64)))
    parts = [places.indices, zeros] if places.axes else [zeros]
    indices = joined(call, len(places.batch), parts)
    return SlicePlaces(indices, places.batch, (*places.axes, *partial))


def _written(
    call: HloCall, places: SlicePlaces, sizes: Sequence[Index], updates: str, reduction: Combination
) -> str:
    """Updates out of bounds add the neutral element if combined; if they replace, they are written
    past the end of the first indexed axis, and cropped."""
    shape, order = call.shape(), (*places.axes, *places.rest(call.rank()))
    if not order:
        return _combined(call, updates, reduction)
    x = transposed(call, call.input(0), order)
    fits = _fitting(call, places, sizes)
    op = ScatterND(reduction)
    if fits is None:
        result = call.emit(op, x, with_windows(call, places.indices, places, sizes), updates)
    elif reduction == "none":
        outside = call.note([shape[places.axes[0]], *(0 for _ in places.axes[1:])], I64)
        starts = call.emit(ew.Where(), fits, places.indices, outside)
        border = (sizes[places.axes[0]], *(0 for _ in order[1:]))
        wide = call.emit(Pad((0,) * len(order), border), x)
        result = call.emit(op, wide, with_windows(call, starts, places, sizes), updates)
        kept = call.type_of(x).shape
        result = call.emit(Slice((0,) * len(kept), kept, (1,) * len(kept)), result)
    else:
        starts = call.emit(ew.Where(), fits, places.indices, call.constant(0, I64))
        neutral = call.constant(_neutral(call.dtype(), reduction), call.dtype())
        windows = call.type_of(updates).rank - len(places.batch)
        apart = reshaped(call, fits, (*places.batch, *(1,) * windows))
        updates = call.emit(ew.Where(), apart, updates, neutral)
        result = call.emit(op, x, with_windows(call, starts, places, sizes), updates)
    back = sorted(range(len(order)), key=order.__getitem__)
    return transposed(call, result, back)


def _neutral(dtype: DType, reduction: Combination) -> float:
    low, high = limits(dtype)
    return {"add": 0, "mul": 1, "max": low, "min": high}[reduction]


def _combined(call: HloCall, updates: str, reduction: Combination) -> str:
    """A single update of a scalar."""
    if call.type_of(updates).rank:
        unsupported("several updates of a tensor without axes")
    if reduction == "none":
        return updates
    op = {"add": ew.Add(), "mul": ew.Mul(), "max": ew.Max(), "min": ew.Min()}[reduction]
    return call.emit(op, call.input(0), updates)


def _fitting(call: HloCall, places: SlicePlaces, sizes: Sequence[Index]) -> str | None:
    """Which updates are in bounds, as ``[*batch, 1]``; None if all provably are."""
    high = greatest(call, places.axes, sizes)
    known, limit = call.emitter.contents(places.indices), call.emitter.contents(high)
    if known is not None and limit is not None and not is_symbolic(known) | is_symbolic(limit):
        inside: Array = (known >= 0) & (known <= limit)
        if bool(inside.all()):
            return None
    own = call.as_value(places.indices)
    positive = call.emit(ew.GreaterOrEqual(), own.name, own.lift(0).name)
    below = call.emit(ew.LessOrEqual(), own.name, high)
    both = call.emit(ew.And(), positive, below)
    axis = len(places.batch)
    return both if len(places.axes) == 1 else call.emit(ReduceMin((axis,), True), both)


SCATTERING = table(scatter=scatter)
