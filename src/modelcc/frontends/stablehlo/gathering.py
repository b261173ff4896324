"""Gathers with general dimension numbers, and dynamic slices."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.stablehlo.call import HloCall, table
from modelcc.frontends.stablehlo.places import (
    IndexNumbers,
    SlicePlaces,
    greatest,
    index_numbers,
    places_of,
    with_windows,
)
from modelcc.frontends.stablehlo.structure import reshaped, transposed
from modelcc.ir.condition import Constraint
from modelcc.ir.index import Index, Range, Sym, compare, maximum, minimum, simplify
from modelcc.ir.types import I64
from modelcc.ops import elementwise as ew
from modelcc.ops.broadcast import Expand
from modelcc.ops.gather import Gather, GatherND
from modelcc.ops.slicing import ReplaceSlice, Slice


def _numbers(call: HloCall) -> IndexNumbers:
    return index_numbers(
        call, "dimension_numbers", "offset_dims", "collapsed_slice_dims",
        ("operand_batching_dims", "start_indices_batching_dims"), "start_index_map",
    )  # fmt: skip


def gather(call: HloCall) -> str:
    return gathered(call, call.integers("slice_sizes"))


def dynamic_gather(call: HloCall) -> str:
    return gathered(call, call.indices(2, "slice sizes", Range(0, None)))


def gathered(call: HloCall, sizes: Sequence[Index]) -> str:
    """``GatherND`` with window offsets added to the starts, and its axes permuted.

    Starts are clamped, so that slices are in bounds.
    """
    numbers, places = _numbers(call), places_of(call, _numbers(call))
    if not places.axes:
        whole = call.emit(Expand((*places.batch, *sizes)), _cropped(call, (), sizes))
        return _arranged(call, whole, numbers, places, tuple(range(call.rank())), sizes)
    x, starts = _cropped(call, places.axes, sizes), _clamped(call, places, sizes)
    wide, rest = places.wide(sizes), places.rest(call.rank())
    if len(places.axes) == 1 and not wide:
        result = _along_one(call, x, starts, places)
    else:
        turned = transposed(call, x, (*places.axes, *rest))
        result = call.emit(GatherND(), turned, with_windows(call, starts, places, sizes))
    return _arranged(call, result, numbers, places, (*wide, *rest), sizes)


def _cropped(call: HloCall, axes: Sequence[int], sizes: Sequence[Index]) -> str:
    """Operand 0 cropped to what slices reach along axes without an index."""
    kept = tuple(e if a in axes else sizes[a] for a, e in enumerate(call.shape()))
    pairs = zip(kept, call.shape(), strict=True)
    if all(compare(a, "==", b, call.bounds) for a, b in pairs):
        return call.input(0)
    return call.emit(Slice((0,) * len(kept), kept, (1,) * len(kept)), call.input(0))


def _clamped(call: HloCall, places: SlicePlaces, sizes: Sequence[Index]) -> str:
    raised = call.emit(ew.Max(), places.indices, call.constant(0, I64))
    return call.emit(ew.Min(), raised, greatest(call, places.axes, sizes))


def _along_one(call: HloCall, x: str, indices: str, places: SlicePlaces) -> str:
    """Along one axis: with batch axes first, as in ``GatherND``."""
    (axis,) = places.axes
    flat = reshaped(call, indices, places.batch)
    result = call.emit(Gather(axis), x, flat)
    count, rank = len(places.batch), call.type_of(result).rank
    order = (*range(axis, axis + count), *range(axis), *range(axis + count, rank))
    return transposed(call, result, order)


def _arranged(
    call: HloCall,
    result: str,
    numbers: IndexNumbers,
    places: SlicePlaces,
    kept: Sequence[int],
    sizes: Sequence[Index],
) -> str:
    """``[*batch, *kept]`` in the order of the dimension numbers: axes of extent 1 inserted or
    dropped.

    ``kept`` are the operand's axes that the result has so far.
    """
    count = len(places.batch)
    shown = [a for a in range(len(sizes)) if a not in numbers.hidden]
    order = sorted(kept)
    turned = (*range(count), *(count + list(kept).index(a) for a in order))
    result = transposed(call, result, turned)
    whole = reshaped(call, result, (*places.batch, *(sizes[a] for a in shown)))
    batches = iter(range(count))
    windows = {axis: count + n for n, axis in enumerate(numbers.windows)}
    final = (windows[a] if a in windows else next(batches) for a in range(count + len(shown)))
    return transposed(call, whole, tuple(final))


def dynamic_slice(call: HloCall) -> str:
    sizes = call.integers("slice_sizes")
    starts = _starts(call, 1, sizes)
    return call.emit(Slice(starts, sizes, (1,) * len(sizes)), call.input(0))


def dynamic_update_slice(call: HloCall) -> str:
    starts = _starts(call, 2, call.shape(1))
    return call.emit(ReplaceSlice(starts), call.input(0), call.input(1))


def _starts(call: HloCall, first: int, sizes: Sequence[Index]) -> tuple[Index, ...]:
    """The operands from ``first`` on as clamped starts of a slice of operand 0."""
    rows = enumerate(zip(call.shape(), sizes, strict=True))
    return tuple(_start(call, first + axis, extent - size) for axis, (extent, size) in rows)


def _start(call: HloCall, operand: int, high: Index) -> Index:
    high = simplify(high, call.bounds)
    if high == 0:
        return 0
    if call.known(operand) is not None:
        start = call.index(operand, "start")
        inside = compare(start, ">=", 0, call.bounds) and compare(start, "<=", high, call.bounds)
        clamped = start if inside else minimum(maximum(start, 0), high)
        return simplify(clamped, call.bounds)
    start = call.emit(ew.Cast(I64), call.input(operand))
    start = call.emit(ew.Max(), start, call.constant(0, I64))
    start = call.emit(ew.Min(), start, reshaped(call, call.note([high], I64), ()))
    known = Range(0, high if isinstance(high, int) else None)
    bound: list[Constraint] = [] if isinstance(high, int) else [(Sym("#0"), "<=", high)]
    (found,) = call.emitter.read_sizes(start, "start", known, bound, call.source)
    return found


GATHERING = table(
    gather=gather,
    dynamic_gather=dynamic_gather,
    dynamic_slice=dynamic_slice,
    dynamic_update_slice=dynamic_update_slice,
)
