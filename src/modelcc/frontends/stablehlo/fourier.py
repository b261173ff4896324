"""Fourier transforms, axis by axis."""

from __future__ import annotations

from modelcc.frontends.kit.errors import number_of, unsupported
from modelcc.frontends.stablehlo.call import HloCall, table
from modelcc.frontends.stablehlo.complex_values import ComplexValue, as_parts, of_parts
from modelcc.frontends.stablehlo.structure import reshaped, reversed_along, transposed
from modelcc.ir.index import product
from modelcc.ops.elementwise import Neg
from modelcc.ops.fourier import FourierTransform
from modelcc.ops.fourier_tables import tables
from modelcc.ops.shape import Concat
from modelcc.ops.slicing import Slice


def fft(call: HloCall) -> str:
    """Along the last axes, the last one first, or last of a transform that becomes real."""
    kind, lengths = str(call.attribute("fft_type")), call.integers("fft_length")
    x, count = call.input(0), len(lengths)
    if kind == "RFFT":
        x = _along_last(call, x, lengths[-1], real=True)
        count -= 1
    for axis in range(count - (kind == "IRFFT")):
        place = axis - len(lengths)
        x = _along(call, x, place, lengths[axis], kind in ("IFFT", "IRFFT"))
    if kind != "IRFFT":
        return x
    group = call.emitter.find_group(_along_last(call, _mirrored(call, x, lengths[-1]), lengths[-1],
                                                inverse=True))  # fmt: skip
    assert group is not None
    return group.parts[0]


def _along(call: HloCall, x: str, axis: int, length: int, inverse: bool) -> str:
    """A transform of complex numbers along ``axis``, counted from the end."""
    if axis == -1:
        return _along_last(call, x, length, inverse=inverse)
    group = call.emitter.find_group(x)
    assert group is not None
    rank = call.type_of(group.parts[0]).rank
    order = [*(a for a in range(rank) if a != rank + axis), rank + axis]
    turned = call.group(group.of([transposed(call, part, order) for part in group.parts]))
    found = call.emitter.find_group(_along_last(call, turned, length, inverse=inverse))
    assert found is not None
    back = sorted(range(rank), key=order.__getitem__)
    return call.group(found.of([transposed(call, part, back) for part in found.parts]))


def _along_last(
    call: HloCall, x: str, length: int, inverse: bool = False, real: bool = False
) -> str:
    parts = x if real else as_parts(call.emitter, x)
    type = call.type_of(parts)
    outer = type.shape[:-1] if real else type.shape[:-2]
    if length < 1:
        unsupported("transforms of no numbers")
    line = reshaped(call, parts, (product(outer), *type.shape[len(outer) :]))
    op = FourierTransform(length, inverse, inverse, real)
    found = call.emit(op, line, *(call.constant(t) for t in tables(length, type.dtype)))
    return of_parts(call.emitter, reshaped(call, found, (*outer, *call.type_of(found).shape[1:])))


def _mirrored(call: HloCall, x: str, length: int) -> str:
    """All ``length`` numbers of a spectrum of which the first half is given."""
    group = call.emitter.find_group(x)
    if not isinstance(group, ComplexValue):
        unsupported("an operand that is not complex")
    shape = call.type_of(group.real).shape
    axis, given = len(shape) - 1, number_of(shape[-1], "number of frequencies")
    count = length - given
    if count < 1:
        return x
    starts = (*(0 for _ in shape[:-1]), 1)
    rest = Slice(starts, (*shape[:-1], count), (1,) * len(shape))
    tails = [reversed_along(call, call.emit(rest, part), [axis]) for part in group.parts]
    wholes = (
        call.emit(Concat(axis), group.real, tails[0]),
        call.emit(Concat(axis), group.imag, call.emit(Neg(), tails[1])),
    )
    return call.group(ComplexValue(*wholes))


FOURIER = table(fft=fft)
