"""Scales and zero points with symbolic extents: their number is known at run time.

Those of a whole tensor are scalars; those of slices one each, or one for all.
"""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.frontends.onnx.call import Call
from modelcc.ir.index import Index


def of_tensor(call: Call, *places: int) -> Call:
    """``call`` with operands ``places`` as scalars; a run fails if they are not."""
    return _changed(call, {i: _single(call, i) for i in places if call.has(i)})


def of_slices(call: Call, extents: Sequence[Index], *places: int) -> Call:
    """``call`` with operands ``places`` of the length of the last of ``extents``, or of one
    element.

    Those of higher rank broadcast to ``extents``.
    """
    return _changed(call, {i: _stretched(call, i, extents) for i in places if call.has(i)})


def _changed(call: Call, operands: dict[int, str]) -> Call:
    return call.with_inputs(tuple(operands.get(i, name) for i, name in enumerate(call.inputs)))


def _single(call: Call, i: int) -> str:
    shape, name = call.shape(i), call.input(i)
    return call.sized(name, 0, 1) if len(shape) == 1 and not isinstance(shape[0], int) else name


def _stretched(call: Call, i: int, extents: Sequence[Index]) -> str:
    """Scalars are left alone: the op checks them."""
    shape = call.shape(i)
    if len(shape) > len(extents):
        call.fail(f"parameters {call.type(i)} have more dimensions than what they belong to")
    target = (
        own if isinstance(own, int) else extent
        for own, extent in zip(shape, extents[len(extents) - len(shape) :], strict=True)
    )
    return call.emitter.stretched(call.input(i), tuple(target), call.source)
