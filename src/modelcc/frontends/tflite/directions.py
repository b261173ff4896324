"""Bidirectional recurrent operators: each direction as an operator of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.tflite.call import TfliteCall
from modelcc.ops.shape import Concat
from modelcc.ops.slicing import Slice

OneWay = Callable[[TfliteCall], str]


def picked(call: TfliteCall, places: Sequence[int]) -> TfliteCall:
    """The same operator with the operands at ``places``, -1 for an absent one."""
    given = [place if 0 <= place < len(call.inputs) else -1 for place in places]
    return replace(
        call,
        inputs=tuple("" if n < 0 else call.inputs[n] for n in given),
        labels=tuple("" if n < 0 else call.labels[n] for n in given),
        operands=tuple(None if n < 0 else call.operands[n] for n in given),
        op=replace(call.op, inputs=tuple(-1 if n < 0 else call.op.inputs[n] for n in given)),
    )


def both_ways(
    call: TfliteCall, one_way: OneWay, forward: Sequence[int], backward: Sequence[int], more: int
) -> tuple[str, ...]:
    """``one_way`` with the operands of each direction; their results, or both concatenated.

    Operands from ``more`` on belong to a second sequence, which is not supported.
    """
    if any(call.has(n) for n in range(more, len(call.inputs))):
        unsupported("a second sequence as operand")
    time = 0 if call.flag("time_major") else 1
    first = one_way(picked(call, forward))
    turned = picked(call, backward)
    turned = replace(turned, inputs=(_reversed(call, call.input(0), time), *turned.inputs[1:]))
    second = _reversed(call, one_way(turned), time)
    if call.flag("merge_outputs"):
        return (call.emit(Concat(2), first, second),)
    return first, second


def _reversed(call: TfliteCall, x: str, axis: int) -> str:
    shape = call.type_of(x).shape
    starts = tuple(e - 1 if a == axis else 0 for a, e in enumerate(shape))
    steps = tuple(-1 if a == axis else 1 for a in range(len(shape)))
    return call.emit(Slice(starts, shape, steps), x)
