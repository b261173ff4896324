"""Handlers of signal processing: Fourier transforms are products with their matrices."""

from __future__ import annotations

from math import floor, log10
from types import MappingProxyType

import numpy as np

from modelcc.frontends.onnx.call import Call, Handlers
from modelcc.frontends.onnx.errors import unsupported
from modelcc.frontends.onnx.shape import reshaped, sliced
from modelcc.frontends.onnx.tensors import dtype_from_onnx
from modelcc.ir.index import Index
from modelcc.ir.types import F32, Array
from modelcc.ops.elementwise import Mul
from modelcc.ops.gather import Gather
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Transpose

LARGEST = 1 << 13
"""Extents of which the matrix of a transform is still of a sensible size."""


def dft(call: Call) -> str:
    """The axis is an attribute before opset 20, then an operand."""
    rank = call.rank()
    if rank < 2 or call.shape()[-1] not in (1, 2):
        call.fail(f"the last axis of {call.type()} must hold real or complex numbers")
    axis = call.axis(1) if call.opset < 20 else _axis(call, rank)
    inverse, onesided = call.attrs.flag("inverse"), call.attrs.flag("onesided")
    extent = _known(call, call.shape()[axis], "the extent of its axis")
    length = 2 * (extent - 1) if inverse and onesided else extent
    if call.has(1):
        (length,) = call.integers(1, "length")
    used = min(extent, length // 2 + 1 if inverse and onesided else length)
    x = sliced(call, call.input(0), {axis: (0, used, 1)}, call.shape())
    return _transformed(call, x, axis, matrix(used, length, inverse, onesided))


def _axis(call: Call, rank: int) -> int:
    return call.normal(call.integers(2, "axis")[0], rank) if call.has(2) else rank - 2


def _known(call: Call, extent: Index, what: str) -> int:
    if not isinstance(extent, int):
        unsupported(f"{what} depends on a named dimension; fix it")
    if extent > LARGEST:
        unsupported(f"{what} is {extent}; up to {LARGEST} are supported")
    return extent


def matrix(used: int, length: int, inverse: bool, onesided: bool) -> Array:
    """``[used, 2, frequencies, 2]``: from (real, imaginary) parts to such parts, in f64.

    Of a spectrum that is ``onesided``, the inverse has real parts only: its second half mirrors
    the first.
    """
    count = length // 2 + 1 if onesided and not inverse else length
    angles = 2 * np.pi * np.outer(np.arange(used), np.arange(count)) / length
    cos, sin = np.cos(angles), np.sin(angles) * (-1 if inverse else 1)
    found = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], 1)
    if not inverse:
        return found
    if onesided:
        twice = np.full(used, 2.0)
        twice[0] = 1
        if length % 2 == 0:
            twice[length // 2 :] = 1
        found = (found * twice[:, None, None, None])[..., :1]
    return found / length


def _transformed(call: Call, x: str, axis: int, weights: Array) -> str:
    """``x`` of ``[…, axis, …, parts]`` times the matrix along ``axis`` and parts."""
    type = call.type_of(x)
    rank, parts = type.rank, type.shape[-1]
    others = [a for a in range(rank - 1) if a != axis]
    perm = (*others, axis, rank - 1)
    moved = x if perm == tuple(range(rank)) else call.emit(Transpose(perm), x)
    used, _, count, results = weights.shape
    outer = tuple(type.shape[a] for a in others)
    flat = reshaped(call, moved, (*outer, used * (parts if isinstance(parts, int) else 1)))
    weights = weights[:, :parts].reshape(-1, count * results)
    product = call.emit(MatMul(), flat, call.constant(weights.astype(type.dtype.numpy)))
    result = reshaped(call, product, (*outer, count, results))
    back = tuple(int(p) for p in np.argsort(perm))
    return result if perm == tuple(range(rank)) else call.emit(Transpose(back), result)


def stft(call: Call) -> str:
    """Frames of the signal, each times the window, then transformed."""
    (step,) = call.integers(1, "frame_step")
    if call.has(3):
        (length,) = call.integers(3, "frame_length")
    elif call.has(2):
        length = _known(call, call.shape(2)[0], "the window's length")
    else:
        call.fail("neither a window nor a frame length is given")
    batch, samples, *_ = call.shape()
    samples = _known_signal(call, samples)
    count = (samples - length) // step + 1
    if step < 1 or count < 1:
        call.fail(f"a signal of {samples} samples has no frames of {length} each {step}")
    parts = call.shape()[2] if call.rank() == 3 else 1
    signal = reshaped(call, call.input(0), (batch, samples, parts))
    places = np.arange(count)[:, None] * step + np.arange(length)
    frames = call.emit(Gather(1), signal, call.constant(places))
    if call.has(2):
        frames = call.emit(Mul(), frames, reshaped(call, call.input(2), (length, 1)))
    onesided = call.attrs.flag("onesided", True)
    return _transformed(call, frames, 2, matrix(length, length, False, onesided))


def _known_signal(call: Call, samples: Index) -> int:
    if not isinstance(samples, int):
        unsupported("the number of samples depends on a named dimension; fix it")
    return samples


def mel_weight_matrix(call: Call) -> str:
    """Triangles over the frequencies of a spectrum, evenly spaced in mel; a constant."""
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    bins, length, rate, low, high = (
        call.array(i, name).reshape(()).item() for i, name in enumerate(names)
    )
    first, last = (2595 * log10(1 + edge / 700) for edge in (low, high))
    edges = [first + i * (last - first) / (bins + 2) for i in range(bins + 2)]
    places = [floor((length + 1) * 700 * (10 ** (e / 2595) - 1) / rate) for e in edges]
    result = np.zeros((length // 2 + 1, bins))
    for i in range(bins):
        left, middle, right = places[i : i + 3]
        for j in range(left, middle + 1):
            result[j, i] = (j - left) / (middle - left) if middle > left else 1.0
        for j in range(middle, right):
            result[j, i] = (right - j) / (right - middle)
    code = call.attrs.integer("output_datatype", 0)
    dtype = dtype_from_onnx(code, call.source[-1]) if code else F32
    return call.constant(result.astype(dtype.numpy))


SIGNAL: Handlers = MappingProxyType(
    {"DFT": dft, "STFT": stft, "MelWeightMatrix": mel_weight_matrix}
)
