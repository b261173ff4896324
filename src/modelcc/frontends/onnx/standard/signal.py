"""Handlers of signal processing: Fourier transforms, frames and windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.fourier import Form, transformed
from modelcc.frontends.kit.vectors import axes_at, positions, vector_of
from modelcc.frontends.onnx.call import Call, table
from modelcc.frontends.onnx.standard.runtime_shape import around, sized
from modelcc.ir.index import Index, Range, compare, floordiv, product, simplify
from modelcc.ir.types import F32, F64, I64
from modelcc.ops import elementwise as ew
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.broadcast import reshaped
from modelcc.ops.comparison import where
from modelcc.ops.gather import Gather
from modelcc.ops.generate import Iota
from modelcc.ops.shape import Reshape
from modelcc.ops.views import part


def dft(call: Call) -> str:
    """The axis is an attribute before opset 20, then an operand."""
    rank = call.rank()
    if rank < 2 or call.shape()[-1] not in (1, 2):
        call.fail(f"the last axis of {call.type()} must hold real or complex numbers")
    form = Form(call.attrs.flag("inverse"), call.attrs.flag("onesided"))
    if call.opset >= 20 and call.has(2) and call.known(2) is None:
        return _along_dynamic_axis(call, form)
    axis = call.axis(1) if call.opset < 20 else _axis(call, rank)
    return transformed(call, call.input(0), axis, form, _length(call, call.shape()[axis], form))


def _axis(call: Call, rank: int) -> int:
    return call.normal(call.integers(2, "axis")[0], rank) if call.has(2) else rank - 2


def _length(call: Call, extent: Index, form: Form) -> Index:
    if call.has(1):
        return call.index(1, "length", Range(1, None))
    return 2 * (extent - 1) if form.inverse and form.onesided else extent


def _along_dynamic_axis(call: Call, form: Form) -> str:
    """Along an axis computed at run time: x as [before, along, after, parts]."""
    *extents, parts = call.shape()
    static = [extent for extent in extents if isinstance(extent, int)]
    if len(static) == len(extents) and parts == 2 and not call.has(1) and not form.onesided:
        return _along_one_of(call, form, static)
    rank = len(extents)
    axis = axes_at(call, 2, rank + 1)
    label = call.labels[2] or "axis"
    shape = around(call, axis, extents, f"{label}_extents")
    x = call.emit(Reshape((*shape, parts)), call.input(0))
    y = transformed(call, x, 1, form, _length(call, shape[1], form))
    *_, along, after, results = call.type_of(y).shape
    here = positions(rank, call).equals(axis)
    found = here.where(vector_of(call, (along,)), vector_of(call, extents))
    elements = product((shape[0], along, after))
    return call.emit(Reshape((*sized(found, f"{label}_results", elements), results)), y)


def _along_one_of(call: Call, form: Form, extents: Sequence[int]) -> str:
    """Along every axis, then the requested one is selected: their matrices are constants."""
    rank = len(extents)
    axis = axes_at(call, 2, rank + 1).name
    result = transformed(call, call.input(0), 0, form, extents[0])
    for other in range(1, rank):
        here = call.emit(ew.Equal(), axis, call.constant(np.array([other])))
        along = transformed(call, call.input(0), other, form, extents[other])
        result = call.emit(ew.Where(), here, along, result)
    return result


def stft(call: Call) -> str:
    """Frames of the signal, each times the window, then transformed."""
    step = call.index(1, "frame_step", Range(1, None))
    if call.has(3):
        length = call.index(3, "frame_length", Range(1, None))
    elif call.has(2):
        (length,) = call.shape(2)
    else:
        call.fail("neither a window nor a frame length is given")
    batch, samples, *rest = call.shape()
    count = simplify(floordiv(samples - length, step) + 1, call.bounds)
    if compare(step, "<", 1, call.bounds) or compare(count, "<", 1, call.bounds):
        call.fail(f"a signal of {samples} samples has no frames of {length} each {step}")
    call.emitter.require([(length, "<=", samples)], call.source)
    parts = rest[0] if rest else 1
    signal = reshaped(call, call.input(0), (batch, samples, parts))
    first, within = Iota((count, length), 0, 0, step), Iota((count, length), 1)
    places = call.emit(ew.Add(), call.emit(first), call.emit(within))
    frames = call.emit(Gather(1), signal, places)
    if call.has(2):
        frames = call.emit(ew.Mul(), frames, reshaped(call, call.input(2), (length, 1)))
    form = Form(False, call.attrs.flag("onesided", True))
    return transformed(call, frames, 2, form, length)


def mel_weight_matrix(call: Call) -> str:
    """Triangular filters over the frequencies of a spectrum, evenly spaced on the mel scale."""
    bins = call.index(0, "num_mel_bins", Range(0, None))
    length = call.index(1, "dft_length", Range(1, None))
    rows = floordiv(length, 2) + 1
    places = _mel_places(call, bins, length)
    left, middle, right = (part(places, 0, i, bins) for i in range(3))
    j = of(ew.Cast(F64), call.made(Iota((rows, 1), 0)))
    rise, fall = middle - left, right - middle
    up = (j - left) / of(ew.Max(), rise, rise.lift(1.0))
    down = (right - j) / of(ew.Max(), fall, fall.lift(1.0))
    up = where(of(ew.Equal(), middle, left), 1.0, up)

    def between(low: Value, high: Value) -> Value:
        return of(ew.And(), of(ew.GreaterOrEqual(), j, low), of(ew.LessOrEqual(), j, high))

    result = where(between(left, middle), up, 0.0)
    result = where(between(middle, right - 1.0), down, result)
    return of(ew.Cast(call.attrs.dtype("output_datatype", F32)), result).name


def _mel_places(call: Call, bins: Index, length: Index) -> Value:
    """The start, peak and end bins of the filters: f64[bins + 2] integral bins."""
    rate, low, high = (of(Reshape((1,)), of(ew.Cast(F64), call.value(i))) for i in (2, 3, 4))

    def mel(edge: Value) -> Value:
        return of(ew.Log(), edge / 700.0 + 1.0) * (2595 / log(10))

    def number(index: Index) -> Value:
        return of(ew.Cast(F64), Value(call, call.note((index,), I64)))

    first = mel(low)
    reach = mel(high) - first
    line = of(ew.Cast(F64), call.made(Iota((bins + 2,))))
    edges = (first + line * (reach / number(bins + 2))) * (log(10) / 2595)
    hertz = (of(ew.Exp(), edges) - 1.0) * 700.0
    return of(ew.Floor(), number(length + 1) * hertz / rate)


def window(call: Call) -> str:
    """The standard's definition, in which a negative size counts as 0; onnxruntime rejects it."""
    (size,) = call.indices(0, "size", Range())
    if compare(size, ">=", 0, call.bounds) is False:
        call.fail(f"a window of {size} numbers")
    call.emitter.require(((size, ">=", 0),), call.source)
    unsupported("it is defined by others")


SIGNAL = table(
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), window),
    DFT=dft,
    MelWeightMatrix=mel_weight_matrix,
    STFT=stft,
)
