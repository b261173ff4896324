"""Complex numbers, which TFLite produces by Fourier transforms only: pairs of real values."""

from __future__ import annotations

from dataclasses import replace

from modelcc.frontends.kit.complex_functions import Complex, magnitude
from modelcc.frontends.kit.complex_values import ComplexValue, of_parts
from modelcc.frontends.kit.fourier import Form, transformed
from modelcc.frontends.tflite.call import Handlers, SingleResult, TfliteCall
from modelcc.ops.broadcast import reshaped


def rfft2d(call: TfliteCall) -> str:
    """RFFT2D: the half spectrum along the last axis, then a transform along the one before."""
    call.require_float()
    lengths = call.integers(1, "lengths")
    if len(lengths) != 2 or call.rank() < 2:
        call.fail(f"it transforms {call.type()} with lengths {lengths}")
    x = reshaped(call, call.input(0), (*call.shape(), 1))
    columns = call.rank() - 1
    rows = transformed(call, x, columns, Form(inverse=False, onesided=True), lengths[1])
    both = transformed(call, rows, columns - 1, Form(inverse=False, onesided=False), lengths[0])
    return of_parts(call.emitter, both)


def _numbers(call: TfliteCall) -> ComplexValue:
    found = call.find_group(0)
    if not isinstance(found, ComplexValue):
        call.fail(f"its operand {call.labels[0]!r} is not complex")
    return found


def complex_abs(call: TfliteCall) -> str:
    """COMPLEX_ABS."""
    own = _numbers(call)
    return magnitude(Complex(call.as_value(own.real), call.as_value(own.imag))).name


def real(call: TfliteCall) -> str:
    """REAL."""
    return _numbers(call).real


def imag(call: TfliteCall) -> str:
    """IMAG."""
    return _numbers(call).imag


def of_each_part(handler: SingleResult) -> SingleResult:
    """A data movement operator, applied to both parts of complex operands."""

    def either(call: TfliteCall) -> str:
        found = call.find_group(0)
        if not isinstance(found, ComplexValue):
            return handler(call)
        parts = [handler(replace(call, inputs=(part, *call.inputs[1:]))) for part in found.parts]
        return call.group(ComplexValue(*parts))

    return either


COMPLEX_NUMBERS: Handlers = {
    "RFFT2D": rfft2d,
    "COMPLEX_ABS": complex_abs,
    "REAL": real,
    "IMAG": imag,
}
