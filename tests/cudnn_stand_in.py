"""What stands for cuDNN in tests: convolutions by NumPy of what descriptors say, when the stream of
the stand-in driver does its work.

It is strict: descriptors are complete before they are used, all that a convolution touches lies in
the GPU's memory, and algorithms are those that the library takes.
"""

# ruff: noqa: N802, N815

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
from library_stand_in import FakeLibrary

from modelcc.ir.types import Array
from modelcc.runtime.streams.cudnn import SIGNATURES, AlgorithmPerformance

ELEMENTS = {0: np.dtype("f4"), 2: np.dtype("f2"), 9: np.dtype(ml_dtypes.bfloat16)}
PRECOMPUTED, NEEDS = 1, 4096
"""The algorithm that all calls may use, and its bytes."""


class FakeCudnn(FakeLibrary):
    """Its functions have addresses; ``failures`` are what was wrong with calls."""

    signatures = SIGNATURES

    def cudnnCreate(self, handle: int) -> None:
        self._made(handle)

    def cudnnSetStream(self, handle: int, stream: int) -> None:
        self._objects[handle]["stream"] = stream

    def _create(self, place: int) -> None:
        self._made(place)

    cudnnCreateTensorDescriptor = cudnnCreateFilterDescriptor = _create
    cudnnCreateConvolutionDescriptor = cudnnCreateActivationDescriptor = _create
    cudnnDestroyTensorDescriptor = cudnnDestroyFilterDescriptor = FakeLibrary.destroy
    cudnnDestroyConvolutionDescriptor = FakeLibrary.destroy
    cudnnDestroyActivationDescriptor = cudnnDestroy = FakeLibrary.destroy

    def cudnnSetTensor4dDescriptorEx(self, number: int, kind: int, *given: int) -> None:
        assert min(given) > 0
        self._objects[number] = {"kind": kind, "shape": given[:4], "strides": given[4:]}

    def cudnnSetFilter4dDescriptor(self, number: int, kind: int, order: int, *shape: int) -> None:
        _, c, h, w = shape
        strides = (c * h * w, 1, w * c, c) if order == 1 else (c * h * w, h * w, w, 1)
        about = {"kind": kind, "shape": shape, "strides": strides, "order": order}
        self._objects[number] = about

    def cudnnSetConvolution2dDescriptor(self, number: int, *given: int) -> None:
        *window, mode, compute = given
        assert (mode, compute) == (1, 0), "correlations with sums of f32"
        self._objects[number] = {"window": window}

    def cudnnSetConvolutionMathType(self, number: int, math: int) -> None:
        self._objects[number]["math"] = math

    def cudnnSetConvolutionGroupCount(self, number: int, groups: int) -> None:
        self._objects[number]["groups"] = groups

    def cudnnSetActivationDescriptor(self, number: int, mode: int, nan: int, most: float) -> None:
        assert mode in (1, 5) and nan == 1
        self._objects[number] = {"mode": mode}

    def cudnnGetConvolutionForwardAlgorithm_v7(
        self, handle: int, x: int, w: int, convolution: int, y: int, asked: int, count: int,
        place: int,
    ) -> None:  # fmt: skip
        assert asked == 8
        math = self._objects[convolution]["math"]
        self._check(*(self._objects[n] for n in (x, w, convolution, y)))
        found = (AlgorithmPerformance * asked).from_address(place)
        ways = ((6, 0, 0, 1), (0, 0, 1 << 40, 1), (0, 0, 0, 0), (1, 0, NEEDS, 1), (0, 0, 0, 1))
        for way, (algorithm, status, memory, determinism) in zip(found, ways, strict=False):
            way.algorithm, way.status, way.math = algorithm, status, math
            way.memory, way.determinism = memory, determinism
        ctypes.c_int32.from_address(count).value = len(ways)

    def _check(self, x: Any, w: Any, convolution: Any, y: Any) -> None:
        (n, c, *image), (k, taken, *window), (samples, outputs, *result) = (
            held["shape"] for held in (x, w, y)
        )
        pads, steps, dilations = (convolution["window"][start : start + 2] for start in (0, 2, 4))
        assert (n, k) == (samples, outputs) and taken * convolution["groups"] == c
        assert w["order"] == (x["strides"][1] == 1 and c > 1) == (y["strides"][1] == 1 and k > 1)
        for size, taps, points, pad, step, dilation in zip(
            image, window, result, pads, steps, dilations, strict=True
        ):
            assert (size + 2 * pad - dilation * (taps - 1) - 1) // step + 1 == points

    def cudnnConvolutionForward(
        self, handle: int, alpha: int, xd: int, x: int, wd: int, w: int, convolution: int,
        algorithm: int, workspace: int, size: int, beta: int, yd: int, y: int,
    ) -> None:  # fmt: skip
        scales = [ctypes.c_float.from_address(place).value for place in (alpha, beta)]
        assert scales == [1, 0]
        self._convolve(handle, (xd, x), (wd, w), convolution, algorithm, (workspace, size), (yd, y))

    def cudnnConvolutionBiasActivationForward(
        self, handle: int, alpha: int, xd: int, x: int, wd: int, w: int, convolution: int,
        algorithm: int, workspace: int, size: int, beta: int, zd: int, z: int, bd: int, b: int,
        activation: int, yd: int, y: int,
    ) -> None:  # fmt: skip
        one, scale = (ctypes.c_float.from_address(place).value for place in (alpha, beta))
        assert one == 1 and zd == yd and (scale, z == y) in ((0, True), (1, False))
        relu = self._objects[activation]["mode"] == 1
        assert relu or algorithm == PRECOMPUTED, "identity behind one algorithm only"
        bias = self._array(bd, b)
        assert bias.shape == (1, self._objects[yd]["shape"][1], 1, 1)
        residual = self._array(zd, z) if scale else None
        ends = (xd, x), (wd, w), convolution, algorithm, (workspace, size), (yd, y)
        self._convolve(handle, *ends, added=(bias, residual), relu=relu)

    def _convolve(
        self, handle: int, image: tuple[int, int], weights: tuple[int, int], convolution: int,
        algorithm: int, workspace: tuple[int, int], result: tuple[int, int],
        added: tuple[Array | None, Array | None] = (None, None), relu: bool = False,
    ) -> None:  # fmt: skip
        place, size = workspace
        assert size == (NEEDS if algorithm == PRECOMPUTED else 0)
        self.on_device(place, size)
        x, w, y = (self._array(*pair) for pair in (image, weights, result))
        about = self._objects[convolution]
        self.asked.append((about["math"], int(relu), sum(a is not None for a in added)))

        def work() -> None:
            found = convolved(x.astype("f4"), w.astype("f4"), about["window"], about["groups"])
            for one in added:
                found = found if one is None else found + one.astype("f4")
            y[...] = np.maximum(found, 0) if relu else found

        self.ask(self._objects[handle]["stream"], work)

    def _array(self, descriptor: int, place: int) -> Array:
        """A tensor as (samples, channels, rows, columns), where it is."""
        held = self._objects[descriptor]
        dtype, shape, strides = ELEMENTS[held["kind"]], held["shape"], held["strides"]
        span = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) + 1
        assert place % 16 == 0
        self.on_device(place, span * dtype.itemsize)
        memory = (ctypes.c_uint8 * (span * dtype.itemsize)).from_address(place)
        flat = np.ctypeslib.as_array(memory).view(dtype)
        apart = tuple(step * dtype.itemsize for step in strides)
        return np.lib.stride_tricks.as_strided(flat, shape, apart)


def convolved(x: Array, w: Array, window: list[int], groups: int) -> Array:
    """The correlation of images and weights, channels first."""
    (high, wide), (down, along), (apart, beside) = (
        window[start : start + 2] for start in (0, 2, 4)
    )
    x = np.pad(x, ((0, 0), (0, 0), (high, high), (wide, wide)))
    rows, columns = w.shape[2:]
    spread = (apart * (rows - 1) + 1, beside * (columns - 1) + 1)
    taps = np.lib.stride_tricks.sliding_window_view(x, spread, (2, 3))
    taps = taps[:, :, ::down, ::along, ::apart, ::beside]
    parts = zip(np.split(taps, groups, 1), np.split(w, groups, 0), strict=True)
    return np.concatenate([np.einsum("nchwij,kcij->nkhw", *part) for part in parts], 1)
