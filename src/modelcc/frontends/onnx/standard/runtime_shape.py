"""Handlers of shapes, axes and positions computed at run time.

They are normalised to the ops' form (no -1, nothing negative, one number per axis) by arithmetic
on small tensors, which are then read as index symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from modelcc.frontends.kit.dynamic_choice import sliced_by
from modelcc.frontends.kit.vectors import Vector, axes_at, operand, positions, vector_of
from modelcc.frontends.onnx.call import Call
from modelcc.ir.condition import Constraint
from modelcc.ir.index import Index, Range, Sym, ceildiv, maximum, product
from modelcc.ir.types import F64, I64, U64
from modelcc.ops import elementwise as ew
from modelcc.ops import shape as sh
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import above, where
from modelcc.ops.views import cast

SIZE = Range(0, None)
"""Bounds of a size."""


def reshape(call: Call) -> str:
    """``shape`` may contain 0 (copy) and -1 (infer)."""
    source, target = call.shape(), operand(call, 1)
    rank = target.length
    if not call.attrs.flag("allowzero"):
        padded = (*source, *(1,) * rank)[:rank]
        target = target.equals(0).where(vector_of(call, padded), target)
    rest = target.equals(-1)
    total = product(source)
    known = rest.where(1, target).product()
    missing = vector_of(call, (total,)) // known.clipped(1)
    return _reshaped(call, rest.where(missing, target), call.labels[1])


def _reshaped(call: Call, target: Vector, label: str) -> str:
    """Operand 0 in a shape computed at run time, which must have the same number of elements."""
    shape = sized(target, label or "shape", product(call.shape()))
    return call.emit(sh.Reshape(shape), call.input(0))


def unsqueeze(call: Call) -> str:
    """Extent 1 at ``axes`` of the result, the operand's extents elsewhere."""
    source, rank = call.shape(), call.rank() + operand(call, 1).length
    axes = axes_at(call, 1, rank)
    added = _marks(call, rank, axes)
    if not source:
        return call.emit(sh.Reshape((1,) * rank), call.input(0))
    kept = (added.where(0, 1)).running_sum() - 1
    extents = vector_of(call, source).at(kept.clipped(0, len(source) - 1))
    return _reshaped(call, added.where(1, extents), f"{call.labels[1]}_extents")


def squeeze(call: Call) -> str:
    """The operand's extents without those at ``axes``."""
    axes, source = axes_at(call, 1, call.rank()), call.shape()
    kept = _marks(call, call.rank(), axes).where(0, 1)
    extents = _packed(vector_of(call, source), kept, call.rank() - axes.length)
    return _reshaped(call, extents, f"{call.labels[1]}_extents")


def _packed(values: Vector, kept: Vector, count: int) -> Vector:
    """The ``count`` values where ``kept`` is 1, in order."""
    call = values.call
    if count == 0:
        return vector_of(call, ())
    # Dropped values go to one extra element at the end.
    places = kept.equals(1).where(kept.running_sum() - 1, count)
    room = vector_of(call, (0,) * (count + 1))
    return room.replaced(places, values).slice(0, count)


def _marks(call: Call, rank: int, axes: Vector) -> Vector:
    """Bools: whether each of ``rank`` axes is in ``axes``, which may be negative."""
    none, ones = vector_of(call, (0,) * rank), vector_of(call, (1,) * axes.length)
    return none.replaced(axes, ones).equals(1)


def expand(call: Call) -> str:
    """NumPy broadcasting to a shape."""
    source, target = call.shape(), operand(call, 1)
    rank = max(len(source), target.length)
    own = (1,) * (rank - len(source)) + source
    wanted = vector_of(call, (1,) * (rank - target.length)).joined(target)
    mine = vector_of(call, own)
    needed = wanted.equals(1).where(mine, wanted)
    read = needed.read(call.labels[1] or "shape", SIZE)
    shape: list[Index] = []
    constraints: list[Constraint] = []
    for extent, found in zip(own, read, strict=True):
        fixed = isinstance(extent, int) and extent != 1
        shape.append(extent if fixed else found)
        if fixed:
            constraints.append((found, "==", extent))
    call.emitter.require(constraints, call.source)
    return call.emit(sh.Expand(tuple(shape)), call.input(0))


def slice_(call: Call) -> str:
    """``starts``, ``ends``, ``axes`` and ``steps``, any of them computed at run time."""
    rank, extents = call.rank(), call.shape()
    starts, ends = operand(call, 1), operand(call, 2)
    count = starts.length
    axes = axes_at(call, 3, rank) if call.has(3) else positions(count, call)
    steps = operand(call, 4) if call.has(4) else vector_of(call, (1,) * count)
    whole = vector_of(call, extents)
    if not call.has(3) or call.known(3) is not None:
        known = call.axes(3, 0) if call.has(3) else tuple(range(count))
        return _sliced(call, known or (), starts, ends, steps)
    zeros = vector_of(call, (0,) * rank)
    return _sliced(
        call,
        tuple(range(rank)),
        zeros.replaced(axes, starts),
        whole.replaced(axes, ends),
        vector_of(call, (1,) * rank).replaced(axes, steps),
    )


def _sliced(call: Call, axes: Sequence[int], starts: Vector, ends: Vector, steps: Vector) -> str:
    extents = call.shape()
    along = [extents[a] for a in axes]
    n = vector_of(call, along)
    if call.known(4) is None and call.has(4):
        steps = steps.clipped(n * -1 - 1, n + 1)  # a larger one visits no more elements
    first, last = from_front(starts, n), from_front(ends, n)
    steps = steps.bounded()
    forward = steps > 0
    low, high = forward.where(0, -1), forward.where(n, n - 1)
    first = first.clipped(forward.where(0, 0), high)
    last = last.clipped(low, high)
    stride = forward.where(steps, steps * -1)
    reach = forward.where(last - first, first - last)
    count = (reach > 0).where((reach - 1).clipped(0) // stride + 1, 0)
    label = f"{call.labels[1] or 'slice'}"
    begin = first.read(f"{label}_first", [Range(-1, e) for e in along])
    step = steps.read(f"{label}_step")
    most = [_most(b, s, e) for b, s, e in zip(begin, step, along, strict=True)]
    size = count.read(f"{label}_count", [Range(0, e) for e in most])
    if any(s == 0 for s in step):
        call.fail("a step is 0")
    call.emitter.require([(s, "!=", 0) for s in step], call.source)
    ranges = dict(zip(axes, zip(begin, size, step, strict=True), strict=True))
    line = [ranges.get(a, (0, e, 1)) for a, e in enumerate(extents)]
    begins, sizes, strides = (tuple(part[n] for part in line) for n in range(3))
    return sliced_by(call, sh.Slice(begins, sizes, strides))


def _most(first: Index, step: Index, extent: Index) -> Index:
    """The maximum number of elements of a slice."""
    if not isinstance(step, int) or step == 0:
        return extent
    if isinstance(first, int):
        return ceildiv(extent - first, step) if step > 0 else first // -step + 1
    return ceildiv(extent, abs(step))


def from_front(places: Vector, extents: Vector) -> Vector:
    """Positions that may be negative (from the end of ``extents``), made nonnegative."""
    return (places < 0).where(places + extents, places)


def pads(call: Call, rank: int) -> tuple[Index, ...]:
    """Amounts before, then after, each axis, given for axes computed at run time."""
    amounts, axes = operand(call, 1), axes_at(call, 3, rank)
    count, none = axes.length, vector_of(call, (0,) * rank)
    before = none.replaced(axes, amounts.slice(0, count))
    after = none.replaced(axes, amounts.slice(count, 2 * count))
    return before.joined(after).read(f"{call.labels[1]}_all")


def range_(call: Call) -> str:
    """``start, start + delta, …`` before ``limit``; any of them computed at run time."""
    start, limit, delta = (of(sh.Reshape((1,)), call.value(i)) for i in range(3))
    count = _count(call, start, limit, delta)
    (extent,) = count.read(f"{call.source[-1]}_count", SIZE)
    line = of(ew.Cast(call.dtype()), call.made(sh.Iota((extent,), 0, 0, 1)))
    return (line * delta + start).name


_COUNTED = 2**62
"""Element counts are clamped to this: it fits i64, and exceeds any size."""


def _count(call: Call, start: Value, limit: Value, delta: Value) -> Vector:
    dtype = delta.type.dtype
    if dtype.is_float:
        # As in onnxruntime: the difference is rounded to the type, the quotient is not.
        delta = cast(delta, F64)
        steps = of(ew.Ceil(), cast(limit - start, F64) / delta)
        most = call.literal(np.full(1, _COUNTED), F64)
        whole = where(of(ew.Less(), steps, most), steps, most)
        # For a step of 0 or NaN there is no count; a negative one fails the run.
        still = of(ew.Equal(), delta, delta.lift(0.0))
        real = of(ew.Equal(), where(still, float("nan"), steps), steps)
        count = Vector(call, of(ew.Cast(I64), whole).name).clipped(0)
        return Vector(call, real.name).where(count, -1)
    # Differences between the extremes of a type need its unsigned counterpart.
    wide = U64 if dtype.bits == 64 else I64
    up = above(delta, 0)
    low, high = where(up, start, limit), where(up, limit, start)
    reach = cast(high, wide) - cast(low, wide)
    size = where(up, cast(delta, wide), cast(delta.lift(0), wide) - cast(delta, wide))
    full = (reach - 1) / size
    count = Vector(call, cast(full + 1, I64).name)
    found = Vector(call, of(ew.Less(), low, high).name).where(count, 0)
    # For a step of 0 there is no count; a negative one fails the run.
    return Vector(call, of(ew.Equal(), delta, delta.lift(0)).name).where(-1, found)


def along_axis(call: Call, i: int, apply: Callable[[str], str]) -> str:
    """``apply`` along axis 1 of operand 0 as [before, along, after] for the axis in operand
    ``i``."""
    extents = call.shape()
    shape = around(call, axes_at(call, i, call.rank()), extents, f"{call.labels[i]}_extents")
    result = apply(call.emit(sh.Reshape(shape), call.input(0)))
    return call.emit(sh.Reshape(extents), result)


def around(call: Call, axis: Vector, extents: Sequence[Index], label: str) -> tuple[Index, ...]:
    """The numbers of elements before, along and after an ``axis`` known at run time."""
    whole, places = vector_of(call, extents), positions(len(extents), call)
    before, here, after = (
        side.where(whole, 1).product()
        for side in (places < axis, places.equals(axis), places > axis)
    )
    return sized(before.joined(here).joined(after), label, product(extents))


def sized(shape: Vector, label: str, elements: Index) -> tuple[Index, ...]:
    """``shape`` as indices, whose product must be ``elements``."""
    whole = product(Sym(f"#{n}") for n in range(shape.length))
    return shape.read(label, SIZE, ((whole, "==", elements),))


def over_axes(
    call: Call, axes: Vector, keepdims: bool, apply: Callable[[str, tuple[int, ...]], str]
) -> str:
    """``apply`` over axes given at run time.

    Each axis is split into a kept one and a reduced one; one of the two has extent 1.
    """
    extents, rank = call.shape(), call.rank()
    marks, whole = _marks(call, rank, axes), vector_of(call, extents)
    if call.attrs.flag("noop_with_empty_axes") is False and axes.length == 0:
        marks = vector_of(call, (1,) * rank).equals(1)
    label = call.labels[1] or "axes"
    both = marks.where(1, whole).joined(marks.where(whole, 1))
    split_sizes = both.read(
        f"{label}_split",
        [Range(0, maximum(e, 1)) for e in (*extents, *extents)],  # [0] is [0, 1] or [1, 0]
        [(Sym(f"#{i}") * Sym(f"#{i + rank}"), "==", e) for i, e in enumerate(extents)],
    )
    kept, reduced = split_sizes[:rank], split_sizes[rank:]
    pairs = tuple(e for pair in zip(kept, reduced, strict=True) for e in pair)
    split = call.emit(sh.Reshape(pairs), call.input(0))
    result = apply(split, tuple(range(1, 2 * rank, 2)))
    if keepdims:
        return result
    left = _packed(whole, marks.where(0, 1), rank - axes.length)
    return call.emit(sh.Reshape(sized(left, f"{label}_left", product(kept))), result)
