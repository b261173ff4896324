"""Movement of elements: what they are does not matter."""

from __future__ import annotations

from modelcc.frontends.tflite.call import Handlers, TfliteCall
from modelcc.ir.index import Index, floordiv, product
from modelcc.ops.shape import Reshape


def reshape(call: TfliteCall) -> str:
    """RESHAPE to the shape given by an operand, or else by an option; -1 is what is left."""
    if call.has(1) and call.rank(1) == 1:
        given = call.indices(1, "shape")
    else:
        given = call.tuple("new_shape") or ()
    return call.emit(Reshape(_completed(call, given)), call.input(0))


def _completed(call: TfliteCall, given: tuple[Index, ...]) -> tuple[Index, ...]:
    open_ = [n for n, extent in enumerate(given) if extent == -1]
    if len(open_) > 1:
        call.fail(f"the shape {given} leaves more than one extent open")
    rest = product(extent for extent in given if extent != -1)
    if not open_ or rest == 0:
        return given
    missing = floordiv(product(call.shape()), rest)
    return tuple(missing if n in open_ else extent for n, extent in enumerate(given))


MOVEMENT: Handlers = {"RESHAPE": reshape}
