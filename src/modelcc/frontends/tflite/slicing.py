"""Slicing and padding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.parts import sliced
from modelcc.frontends.kit.slicing import clamped_range
from modelcc.frontends.tflite.call import QUANTIZED, Handlers, TfliteCall
from modelcc.ir.index import Index, Range
from modelcc.ops.broadcast import Reshape
from modelcc.ops.gather import Gather
from modelcc.ops.padding import Pad


def slice_(call: TfliteCall) -> str:
    """SLICE; a size of -1 extends to the end."""
    shape, rank = call.shape(), call.rank()
    sizes = call.indices(2, "sizes")
    if len(sizes) != rank:
        call.fail(f"{len(sizes)} sizes for {call.type()}")
    room = [Range(0, e if s == -1 else e - s) for s, e in zip(sizes, shape, strict=True)]
    begin = call.indices(1, "begin", room)
    ranges: dict[int, tuple[Index, Index, int]] = {}
    for axis, (start, size) in enumerate(zip(begin, sizes, strict=True)):
        ranges[axis] = (start, shape[axis] - start if size == -1 else size, 1)
        whole = all(isinstance(v, int) for v in (start, shape[axis], ranges[axis][1]))
        if whole and not 0 <= start <= start + ranges[axis][1] <= shape[axis]:  # type: ignore[operator]
            call.fail(f"{size} elements from {start} on are not in axis {axis} of {call.type()}")
    return sliced(call, call.input(0), ranges, shape)


def strided_slice(call: TfliteCall) -> str:
    """STRIDED_SLICE by begin, end and strides, with masks of axes."""
    begins, ends = call.indices(1, "begin"), call.indices(2, "end")
    steps = call.integers(3, "strides")
    if not len(begins) == len(ends) == len(steps) or 0 in steps:
        call.fail(f"it slices from {begins} to {ends} by {steps}")
    ranges: list[tuple[Index, Index, int]] = []
    result: list[Index] = []
    for place, axis in _places(call, len(steps)):
        if axis is None:
            result.append(1)
        elif place is None:
            ranges.append((0, call.shape()[axis], 1))
            result.append(call.shape()[axis])
        else:
            ranges.append(_range(call, place, axis, (begins[place], ends[place], steps[place])))
            result += () if _masked(call, "shrink_axis", place) else (ranges[-1][1],)
    taken = sliced(call, call.input(0), dict(enumerate(ranges)), call.shape())
    shape = tuple(result)
    return taken if call.type_of(taken).shape == shape else call.emit(Reshape(shape), taken)


def _masked(call: TfliteCall, name: str, place: int) -> bool:
    return bool(call.integer(f"{name}_mask") >> place & 1)


def _places(call: TfliteCall, count: int) -> Iterator[tuple[int | None, int | None]]:
    """The correspondence of slices and axes: None is a new axis, or an axis that is taken whole."""
    new = sum(_masked(call, "new_axis", place) for place in range(count))
    ellipses = sum(_masked(call, "ellipsis", place) for place in range(count))
    if count - new - ellipses > call.rank() or ellipses > 1:
        call.fail(f"it slices {count} axes of {call.type()}")
    axis, rest = 0, call.rank() - (count - new - ellipses)
    for place in range(count):
        if _masked(call, "ellipsis", place):
            for _ in range(rest):
                yield None, axis
                axis += 1
        elif _masked(call, "new_axis", place):
            yield place, None
        else:
            yield place, axis
            axis += 1
    for whole in range(axis, call.rank()):
        yield None, whole


def _range(
    call: TfliteCall, place: int, axis: int, given: tuple[Index, Index, int]
) -> tuple[Index, Index, int]:
    """Start, count and step along an axis."""
    (first, last, step), extent = given, call.shape()[axis]
    if _masked(call, "begin", place):
        first = 0 if step > 0 else extent - 1
    if _masked(call, "shrink_axis", place):
        start, count = clamped_range(first, extent if first == -1 else first + 1, 1, extent,
                                     call.bounds)  # fmt: skip
        if count == 0:
            call.fail(f"there is no element {first} along axis {axis} of {call.type()}")
        return start, 1, 1
    last = first + last if call.flag("offset") else last
    if _masked(call, "end", place):
        last = extent if step > 0 else -1 - extent
    return *clamped_range(first, last, step, extent, call.bounds), step


def pad(call: TfliteCall) -> str:
    """PAD and PADV2: padding with a value, or with the zero point."""
    value: float = 0
    if call.dtype() in QUANTIZED and call.operands[0] and call.operands[0].quantization:
        value = call.single(0).zero
    if call.has(2):
        value = call.array(2, "value").reshape(-1)[0].item()
    before, after = _amounts(call)
    return call.emit(Pad(before, after, "constant", value), call.input(0))


def mirror_pad(call: TfliteCall) -> str:
    """MIRROR_PAD: reflection at the edges, with or without the edges themselves."""
    before, after = _amounts(call)
    if call.word("mode", "REFLECT") == "REFLECT":
        return call.emit(Pad(before, after, "reflect"), call.input(0))
    return _symmetric(call, before, after)


def _symmetric(call: TfliteCall, before: tuple[Index, ...], after: tuple[Index, ...]) -> str:
    """Symmetric padding: axis by axis, reversed copies of both ends."""
    x = call.value(0)
    for axis, (first, last) in enumerate(zip(before, after, strict=True)):
        extent = x.type.shape[axis]
        if not isinstance(extent, int) or not isinstance(first, int) or not isinstance(last, int):
            unsupported("padding by symmetric elements along a named dimension")
        if max(first, last) > extent:
            call.fail(f"axis {axis} of {call.type()} has no {max(first, last)} elements to mirror")
        places = np.r_[np.arange(first)[::-1], np.arange(extent), extent - 1 - np.arange(last)]
        x = call.as_value(call.emit(Gather(axis), x.name, call.constant(places)))
    return x.name


def _amounts(call: TfliteCall) -> tuple[tuple[Index, ...], tuple[Index, ...]]:
    """Padding before and after each axis."""
    given = call.indices(1, "paddings")
    if len(given) != 2 * call.rank():
        call.fail(f"{len(given)} paddings for {call.type()}")
    if any(isinstance(amount, int) and amount < 0 for amount in given):
        call.fail(f"it is padded by {given}")
    return given[::2], given[1::2]


SLICING: Handlers = {
    "SLICE": slice_,
    "STRIDED_SLICE": strided_slice,
    "PAD": pad,
    "PADV2": pad,
    "MIRROR_PAD": mirror_pad,
}
