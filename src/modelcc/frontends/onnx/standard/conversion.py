"""Operators on types that their op does not support: computed in another type, and converted
back."""

from __future__ import annotations

from collections.abc import Callable

from modelcc.frontends.onnx.call import Call, Handler, Results
from modelcc.ir.types import BOOL, F32, F64, I32, U8, DType
from modelcc.ops.elementwise import Cast

Choice = Callable[[DType], DType | None]
"""The type to compute in, None for the operand's own."""


def computed_in(choice: Choice, handler: Handler) -> Handler:
    """``handler`` with operand 0 cast to the chosen type, and its first result cast back."""

    def converted(call: Call) -> Results:
        own = call.dtype()
        other = choice(own)
        if other is None:
            return handler(call)
        x = call.emit(Cast(other), call.input(0))
        results = handler(call.with_inputs((x, *call.inputs[1:])))
        if isinstance(results, str):
            return call.emit(Cast(own), results)
        return (call.emit(Cast(own), results[0]), *results[1:])

    return converted


def floats(dtype: DType) -> DType | None:
    """A float type that represents integers of ``dtype`` as exactly as possible."""
    if dtype.is_float:
        return None
    return F32 if dtype.bits <= 16 else F64


def bytes_of_bools(dtype: DType) -> DType | None:
    return U8 if dtype == BOOL else None


def sums_of_bools(dtype: DType) -> DType | None:
    return I32 if dtype == BOOL else None
