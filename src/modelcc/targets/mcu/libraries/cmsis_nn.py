"""CMSIS-NN: its functions that compute a kernel bit-exactly, and their arguments.

Its interface and the sizes of its buffers are those of ``arm_nnfunctions.h`` of versions 5 to 7;
fixed-point arithmetic has TFLite's double rounding, as built unless
``CMSIS_NN_USE_SINGLE_ROUNDING`` is defined.
"""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.ir.library import Address, Argument, ExternalCall, Null, Struct
from modelcc.ir.loop import Const
from modelcc.ir.types import I32
from modelcc.targets.mcu.libraries.windows import ImageWindow

NAME = "cmsis-nn"
HEADER = "arm_nnfunctions.h"

IMAGE, WEIGHTS, BIASES, MULTIPLIERS, SHIFTS, OTHER = "x0", "x1", "x2", "x3", "x4", "x1"
RESULT, SCRATCH = "y0", "scratch"
"""Buffer names of functions that wrap calls."""

_WORD, _HALF = 4, 2


@dataclass(frozen=True)
class Limits:
    """A result's zero point, minimum and maximum."""

    zero: int
    low: int
    high: int


@dataclass(frozen=True)
class ScratchCall:
    """A call, and the bytes of its scratch memory."""

    call: ExternalCall
    scratch: int = 0


@dataclass(frozen=True)
class Scaling:
    """A multiplier and a left shift, in the library's format."""

    multiplier: int
    shift: int


@dataclass(frozen=True)
class CmsisNN:
    """The library on a processor with ``dsp`` instructions, or with Helium (``mve``)."""

    dsp: bool
    mve: bool

    def convolve(self, window: ImageWindow, zero: int, into: Limits) -> ScratchCall:
        """A convolution; ``zero`` is the image's zero point."""
        scratch = self._convolve_scratch(window)
        params = _window_params("cmsis_nn_conv_params", window, (-zero, into.zero), into)
        taps = _dims(window.outputs, window.rows.taps, window.columns.taps, window.channels)
        given = (
            *(_context(scratch), params, _CHANNEL_PARAMS, _image(window), Address(IMAGE)),
            *(taps, Address(WEIGHTS), _dims(1, 1, 1, window.outputs), Address(BIASES)),
            *(_result(window), Address(RESULT)),
        )
        return ScratchCall(_call("arm_convolve_wrapper_s8", given), scratch)

    def _convolve_scratch(self, window: ImageWindow) -> int:
        """Scratch bytes: columns of some pixels."""
        steps = window.channels * window.taps
        sides = window.rows, window.columns
        if all(s.taps == s.stride == s.dilation == 1 and s.before == 0 for s in sides):
            return 0
        return 4 * 16 * -(-steps // 16) if self.mve else 2 * 4 * -(-steps // 4) * _HALF

    def depthwise(self, window: ImageWindow, zero: int, into: Limits) -> ScratchCall:
        """A depthwise convolution."""
        scratch = self._depthwise_scratch(window)
        params = _window_params("cmsis_nn_dw_conv_params", window, (-zero, into.zero, 1), into)
        taps = _dims(1, window.rows.taps, window.columns.taps, window.channels)
        given = (
            *(_context(scratch), params, _CHANNEL_PARAMS, _image(window), Address(IMAGE)),
            *(taps, Address(WEIGHTS), _dims(1, 1, 1, window.channels), Address(BIASES)),
            *(_result(window), Address(RESULT)),
        )
        return ScratchCall(_call("arm_depthwise_conv_wrapper_s8", given), scratch)

    def _depthwise_scratch(self, window: ImageWindow) -> int:
        sides = window.rows, window.columns
        if any(side.dilation != 1 for side in sides):
            return 0
        if self.mve:
            return 4 * _MVE_CHANNELS * window.taps
        small = all(side.taps == 3 and side.before <= 1 for side in sides)
        return window.channels * window.taps * _HALF if self.dsp and not small else 0

    def average(self, window: ImageWindow, into: Limits) -> ScratchCall:
        """The mean of each window."""
        scratch = window.channels * _WORD if self.dsp and not self.mve else 0
        return ScratchCall(_pooled("arm_avgpool_s8", window, scratch, into), scratch)

    def greatest(self, window: ImageWindow) -> ScratchCall:
        """The maximum of each window."""
        return ScratchCall(_pooled("arm_max_pool_s8", window, 0, Limits(0, -128, 127)))

    def fully_connected(
        self, window: ImageWindow, zero: int, scale: Scaling, into: Limits
    ) -> ScratchCall | None:
        """One pixel times a matrix, all rows with the same scale; None on processors where that
        needs precomputed sums of the weights."""
        if self.mve:
            return None
        params = Struct("cmsis_nn_fc_params", (*_numbers(-zero, 0, into.zero), _activation(into)))
        per_tensor = Struct(
            "cmsis_nn_per_tensor_quant_params", _numbers(scale.multiplier, scale.shift)
        )
        given = (
            *(_context(0), params, per_tensor, _dims(1, 1, 1, window.channels), Address(IMAGE)),
            *(_dims(window.channels, 1, 1, window.outputs), Address(WEIGHTS)),
            *(_dims(1, 1, 1, window.outputs), Address(BIASES)),
            *(_dims(1, 1, 1, window.outputs), Address(RESULT)),
        )
        return ScratchCall(_call("arm_fully_connected_s8", given))

    def add(
        self, zeros: tuple[int, int], scales: tuple[Scaling, Scaling], left: int, scale: Scaling,
        into: Limits, count: int,
    ) -> ScratchCall:  # fmt: skip
        """Elementwise sums of ``count`` pairs, each scaled after a left shift."""
        (one, other), (first, second) = scales, zeros
        given = (
            *(Address(IMAGE), Address(OTHER)),
            *_numbers(-first, one.multiplier, one.shift, -second, other.multiplier, other.shift),
            *(Const(left, I32), Address(RESULT)),
            *_numbers(into.zero, scale.multiplier, scale.shift, into.low, into.high, count),
        )
        return ScratchCall(_call("arm_elementwise_add_s8", given))

    def multiply(
        self, zeros: tuple[int, int], scale: Scaling, into: Limits, count: int
    ) -> ScratchCall:
        """Elementwise products of ``count`` pairs."""
        given = (
            *(Address(IMAGE), Address(OTHER), *_numbers(-zeros[0], -zeros[1]), Address(RESULT)),
            *_numbers(into.zero, scale.multiplier, scale.shift, into.low, into.high, count),
        )
        return ScratchCall(_call("arm_elementwise_mul_s8", given))


_MVE_CHANNELS = 124
"""Channels that functions with Helium process at once."""


def _call(symbol: str, given: tuple[Argument, ...]) -> ExternalCall:
    return ExternalCall(NAME, symbol, given, header=HEADER)


def _numbers(*values: int) -> tuple[Const, ...]:
    return tuple(Const(value, I32) for value in values)


def _dims(n: int, rows: int, columns: int, channels: int) -> Struct:
    return Struct("cmsis_nn_dims", _numbers(n, rows, columns, channels))


def _image(window: ImageWindow) -> Struct:
    return _dims(1, window.rows.size, window.columns.size, window.channels)


def _result(window: ImageWindow) -> Struct:
    outputs = window.outputs if window.summed else window.channels
    return _dims(1, window.rows.points, window.columns.points, outputs)


def _tile(columns: int, rows: int) -> Struct:
    return Struct("cmsis_nn_tile", _numbers(columns, rows))


def _activation(into: Limits) -> Struct:
    return Struct("cmsis_nn_activation", _numbers(into.low, into.high))


def _context(scratch: int) -> Struct:
    memory = Address(SCRATCH) if scratch else Null()
    return Struct("cmsis_nn_context", (memory, Const(scratch, I32)))


_CHANNEL_PARAMS = Struct(
    "cmsis_nn_per_channel_quant_params", (Address(MULTIPLIERS), Address(SHIFTS))
)


def _window_params(type_: str, window: ImageWindow, first: tuple[int, ...], into: Limits) -> Struct:
    rows, columns = window.rows, window.columns
    return Struct(
        type_,
        (
            *_numbers(*first),
            _tile(columns.stride, rows.stride),
            _tile(columns.before, rows.before),
            _tile(columns.dilation, rows.dilation),
            _activation(into),
        ),
    )


def _pooled(symbol: str, window: ImageWindow, scratch: int, into: Limits) -> ExternalCall:
    rows, columns = window.rows, window.columns
    tiles = _tile(columns.stride, rows.stride), _tile(columns.before, rows.before)
    params = Struct("cmsis_nn_pool_params", (*tiles, _activation(into)))
    taps = _dims(1, rows.taps, columns.taps, 1)
    given = (_context(scratch), params, _image(window), Address(IMAGE), taps)
    return _call(symbol, (*given, _result(window), Address(RESULT)))
