"""Handlers of sequences and optional values, which do not exist after import."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.groups import OptionalValue, SequenceValue
from modelcc.frontends.kit.parts import joined, taken_apart
from modelcc.frontends.onnx.call import Call, table
from modelcc.ir.index import Index, Range, compare, total
from modelcc.ir.types import BOOL
from modelcc.ops import elementwise as ew
from modelcc.ops import shape as sh
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import above, where
from modelcc.ops.gather import Gather


def construct(call: Call) -> str:
    return call.group(SequenceValue(call.inputs))


def empty(call: Call) -> str:
    return call.group(SequenceValue(()))


def length(call: Call) -> str:
    return call.constant(np.array(len(call.elements(0)), np.int64))


def at(call: Call) -> str:
    elements = call.elements(0)
    if not elements:
        call.fail("it takes an element of an empty sequence")
    if call.known(1) is not None:
        return elements[_position(call, 1, len(elements))]
    _require_alike(call, elements)
    return call.emit(Gather(0), stacked(call, elements, 0), call.input(1))


def insert(call: Call) -> str:
    """At a position only known at run time if all elements are equal."""
    elements, new = call.elements(0), call.input(1)
    if not call.has(2):
        return call.group(SequenceValue((*elements, new)))
    if call.known(2) is not None:
        place = _position(call, 2, len(elements), end=True)
        return call.group(SequenceValue((*elements[:place], new, *elements[place:])))
    _require_alike(call, (*elements, new))
    place = _wrapped(call, call.input(2), len(elements))
    return call.group(SequenceValue(tuple(_inserted(call, elements, new, place))))


def _wrapped(call: Call, place: str, count: int) -> Value:
    x = Value(call, place)
    return where(of(ew.Less(), x, x.lift(0)), x + count, x)


def _inserted(call: Call, elements: tuple[str, ...], new: str, place: Value) -> list[str]:
    results: list[str] = []
    for i in range(len(elements) + 1):
        old = Value(call, elements[min(i, len(elements) - 1)] if elements else new)
        moved = Value(call, elements[i - 1] if i else new)
        later = where(of(ew.Equal(), place, place.lift(i)), Value(call, new), moved)
        results.append(where(above(place, i), old, later).name)
    return results


def erase(call: Call) -> str:
    elements = call.elements(0)
    place = _position(call, 1, len(elements)) if call.has(1) else len(elements) - 1
    if not elements:
        call.fail("it erases an element of an empty sequence")
    return call.group(SequenceValue((*elements[:place], *elements[place + 1 :])))


def _position(call: Call, operand: int, count: int, end: bool = False) -> int:
    (place,) = call.integers(operand, "position")
    if not -count <= place < count + end:
        call.fail(f"position {place} does not exist in a sequence of {count} elements")
    return place + count if place < 0 else place


def _require_alike(call: Call, elements: tuple[str, ...]) -> None:
    types = {call.type_of(e) for e in elements}
    if len(types) > 1:
        listed = ", ".join(sorted(map(str, types)))
        unsupported(
            f"its position ({call.labels[-1]!r}) is computed at run time, and the elements "
            f"differ: {listed}"
        )


def stacked(call: Call, elements: tuple[str, ...], axis: int) -> str:
    """Elements of one shape stacked along a new ``axis``."""
    parts: list[str] = []
    for element in elements:
        shape = call.type_of(element).shape
        parts.append(call.emit(sh.Reshape((*shape[:axis], 1, *shape[axis:])), element))
    return joined(call, axis, parts)


def split(call: Call) -> str:
    """Into parts of given sizes or of one size (the last may be shorter), default 1."""
    axis = call.axis(0)
    extents = call.shape()
    sizes = _sizes(call, extents[axis])
    results: list[str] = []
    for part in taken_apart(call, call.input(0), axis, sizes):
        if not call.has(1) and not call.attrs.flag("keepdims", True):
            part = call.emit(sh.Reshape((*extents[:axis], *extents[axis + 1 :])), part)
        results.append(part)
    return call.group(SequenceValue(tuple(results)))


def _sizes(call: Call, extent: Index) -> tuple[Index, ...]:
    if call.has(1) and call.rank(1) == 1:
        sizes = call.indices(1, "split", Range(0, extent))
        whole = total(sizes)
        if compare(whole, "!=", extent, call.bounds):
            call.fail(f"the parts have {whole} elements in all, but the dimension {extent}")
        return sizes
    (step,) = call.integers(1, "split") if call.has(1) else (1,)
    if not isinstance(extent, int):
        unsupported(
            f"into how many parts it splits depends on dimension {extent}; fix that with dims"
        )
    if step < 1:
        call.fail(f"it splits into parts of {step} elements")
    return tuple(min(step, extent - i) for i in range(0, extent, step))


def concat(call: Call) -> str:
    elements = call.elements(0)
    if not elements:
        call.fail("it joins the elements of an empty sequence")
    rank = call.type_of(elements[0]).rank
    if call.attrs.flag("new_axis"):
        return stacked(call, elements, call.axis(rank=rank + 1))
    axis = call.axis(rank=rank)
    return joined(call, axis, elements)


def map_(call: Call) -> tuple[str, ...]:
    """The body once per element; operands that are not sequences are the same for all."""
    count = len(call.elements(0))
    operands = [
        call.elements(i) if call.find_group(i) is not None else (name,) * count
        for i, name in enumerate(call.inputs)
    ]
    if any(len(o) != count for o in operands):
        call.fail(f"its sequences have {', '.join(str(len(o)) for o in operands)} elements")
    body = call.attrs.graph("body")
    rows = [call.inline(body, *row) for row in zip(*operands, strict=True)]
    columns = zip(*rows, strict=True) if rows else [()] * len(body.output)
    return tuple(call.group(SequenceValue(tuple(column))) for column in columns)


def optional(call: Call) -> str:
    return call.group(OptionalValue(call.input(0)))


def has_element(call: Call) -> str:
    group = call.find_group(0) if call.has(0) else OptionalValue("")
    return call.constant(np.array(group != OptionalValue("")), BOOL)


def get_element(call: Call) -> str:
    group = call.find_group(0)
    if not isinstance(group, OptionalValue):
        return call.input(0)
    if not group.value:
        call.fail("it takes the value of an optional that has none")
    return group.value


SEQUENCE = table(
    SequenceConstruct=construct,
    SequenceEmpty=empty,
    SequenceLength=length,
    SequenceAt=at,
    SequenceInsert=insert,
    SequenceErase=erase,
    SplitToSequence=split,
    ConcatFromSequence=concat,
    SequenceMap=map_,
    Optional=optional,
    OptionalHasElement=has_element,
    OptionalGetElement=get_element,
)
