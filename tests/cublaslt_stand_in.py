"""What stands for cuBLASLt in tests: products by NumPy of what descriptions and layouts say, when
the stream of the stand-in driver does its work.

It is strict: attributes have the sizes that the header gives them, all that a product touches lies
in the GPU's memory, and workspaces do, too.
"""

# ruff: noqa: N802, N815

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
from library_stand_in import FakeLibrary

from modelcc.ir.types import Array
from modelcc.runtime.streams.cublaslt import SIGNATURES, HeuristicResult

ELEMENTS = {0: np.dtype("f4"), 2: np.dtype("f2"), 14: np.dtype(ml_dtypes.bfloat16)}
WIDTHS = {3: 4, 4: 4, 7: 4, 8: 8}, {5: 4, 6: 8}, {1: 8, 5: 4, 6: 4, 7: 4, 8: 4}
"""Bytes of the attributes of descriptions, layouts and preferences."""


class FakeCublasLt(FakeLibrary):
    """Its functions have addresses; ``failures`` are what was wrong with calls."""

    signatures = SIGNATURES

    def _set(self, kind: int, number: int, attribute: int, place: int, size: int) -> None:
        assert WIDTHS[kind][attribute] == size
        value = int.from_bytes((ctypes.c_uint8 * size).from_address(place), "little")
        self._objects[number][attribute] = value

    def cublasLtCreate(self, handle: int) -> None:
        self._made(handle)

    def cublasLtMatmulDescCreate(self, place: int, compute: int, scale: int) -> None:
        assert compute in (68, 77) and scale == 0
        self._made(place, compute=compute)

    def cublasLtMatmulDescSetAttribute(self, *given: int) -> None:
        self._set(0, *given)

    def cublasLtMatrixLayoutCreate(
        self, place: int, kind: int, rows: int, columns: int, leading: int
    ) -> None:
        assert leading >= rows > 0 and columns > 0
        self._made(place, kind=kind, rows=rows, columns=columns, leading=leading)

    def cublasLtMatrixLayoutSetAttribute(self, *given: int) -> None:
        self._set(1, *given)

    def cublasLtMatmulPreferenceCreate(self, place: int) -> None:
        self._made(place)

    def cublasLtMatmulPreferenceSetAttribute(self, *given: int) -> None:
        self._set(2, *given)

    def cublasLtMatmulAlgoGetHeuristic(
        self, handle: int, description: int, a: int, b: int, c: int, d: int, preference: int,
        asked: int, results: int, found: int,
    ) -> None:  # fmt: skip
        assert asked == 1 and self._objects[preference][1] > 0
        result = HeuristicResult.from_address(results)
        result.algo[:] = [description, a, b, c, d, 0, 0, 7]
        wanted = self._objects[preference]
        self._objects[description]["aligned"] = wanted[5], wanted[6], wanted[7], wanted[8]
        self._objects[description]["workspace"] = wanted[1]
        ctypes.c_int32.from_address(found).value = 1

    def cublasLtMatmul(
        self, handle: int, description: int, alpha: int, a: int, a_layout: int, b: int,
        b_layout: int, beta: int, c: int, c_layout: int, d: int, d_layout: int, algorithm: int,
        workspace: int, size: int, stream: int,
    ) -> None:  # fmt: skip
        scales = [ctypes.c_float.from_address(place).value for place in (alpha, beta)]
        assert c_layout == d_layout and (scales, c == d) in (([1, 0], True), ([1, 1], False))
        told = HeuristicResult.from_address(algorithm).algo[:]
        assert told == [description, a_layout, b_layout, c_layout, d_layout, 0, 0, 7]
        about = dict(self._objects[description])
        assert size == self._objects[description]["workspace"] and workspace % 256 == 0
        self.on_device(workspace, size)
        for place, alignment in zip((a, b, c, d), about["aligned"], strict=True):
            assert place % alignment == 0
        left, right, result = (
            self._matrices(*pair) for pair in ((a, a_layout), (b, b_layout), (d, d_layout))
        )
        before = self._matrices(c, c_layout) if c != d else None
        bias = None
        if about[7] & 4:
            vector = {"kind": self._objects[d_layout]["kind"], "leading": result.shape[1]}
            bias = self._array(about[8], vector, result.shape[1], 1, 1, 0)[0]
        self.asked.append((about["compute"], about[7], *result.shape))

        def work() -> None:
            x, y = (m.astype(np.float32) for m in (left, right))
            x = x.transpose(0, 2, 1) if about[3] else x
            y = y.transpose(0, 2, 1) if about[4] else y
            found = x @ y
            found = found if before is None else found + before.astype(np.float32)
            found = found if bias is None else found + bias.astype(np.float32)
            found = np.maximum(found, 0) if about[7] & 2 else found
            result[...] = 0.5 * found * (1 + np.tanh(0.79788456 * (found + 0.044715 * found**3))) \
                if about[7] & 32 else found  # fmt: skip

        self.ask(stream, work)

    cublasLtMatmulDescDestroy = cublasLtMatrixLayoutDestroy = FakeLibrary.destroy
    cublasLtMatmulPreferenceDestroy = cublasLtDestroy = FakeLibrary.destroy

    def _matrices(self, place: int, layout: int) -> Array:
        """Matrices of a layout, (count, rows, columns), where they are."""
        held = self._objects[layout]
        return self._array(
            place, held, held["rows"], held["columns"], held.get(5, 1), held.get(6, 0)
        )

    def _array(
        self, place: int, held: dict[Any, int], rows: int, columns: int, count: int, apart: int
    ) -> Array:
        dtype, leading = ELEMENTS[held["kind"]], held["leading"]
        elements = (count - 1) * apart + (columns - 1) * leading + rows
        self.on_device(place, elements * dtype.itemsize)
        memory = (ctypes.c_uint8 * (elements * dtype.itemsize)).from_address(place)
        flat = np.ctypeslib.as_array(memory).view(dtype)
        strides = tuple(n * dtype.itemsize for n in (apart, 1, leading))
        return np.lib.stride_tricks.as_strided(flat, (count, rows, columns), strides)
