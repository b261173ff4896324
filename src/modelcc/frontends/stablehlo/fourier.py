"""Fourier transforms, axis by axis."""

from __future__ import annotations

from modelcc.frontends.kit.complex_values import as_parts, of_parts
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.fourier import Form, reshaped, transformed
from modelcc.frontends.stablehlo.call import HloCall, table


def fft(call: HloCall) -> str:
    """Along the last axes, the last one first, or last of a transform that becomes real."""
    kind, lengths = str(call.attribute("fft_type")), call.integers("fft_length")
    if min(lengths) < 1:
        unsupported("transforms of no numbers")
    x = call.input(0)
    x = reshaped(call, x, (*call.shape(), 1)) if kind == "RFFT" else as_parts(call.emitter, x)
    first = call.type_of(x).rank - 1 - len(lengths)
    order = range(len(lengths))
    for n in order if kind == "IRFFT" else reversed(order):
        halved = kind in ("RFFT", "IRFFT") and n == len(lengths) - 1
        x = transformed(call, x, first + n, Form("I" in kind, halved), lengths[n])
    if kind == "IRFFT":
        return reshaped(call, x, call.type_of(x).shape[:-1])
    return of_parts(call.emitter, x)


FOURIER = table(fft=fft)
