"""Approximate instruction counts of calls to CMSIS-NN.

The numbers are fitted to QEMU's counts of functions of version 7 built by GCC with -O2: within 20 %
in layers of keyword spotting and ResNet-8.  Layers of few channels may take twice as much.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from modelcc.ir.library import ExternalCall, Struct
from modelcc.ir.loop import Const
from modelcc.targets.mcu.machine import McuModel
from modelcc.targets.mcu.timing import Counts, Kind


@dataclass(frozen=True)
class Work:
    """Instructions per element of the result, per element that is multiplied or compared for it,
    and per tap of each window, whose channels are moved."""

    result: float
    step: float = 0.0
    moved: float = 0.0


_POINTS, _SMALL = " of points", " of 3x3"
"""Suffixes of a function's name: special cases for windows of one pixel, and of nine."""

_CONVOLVE, _DEPTHWISE = "arm_convolve_wrapper_s8", "arm_depthwise_conv_wrapper_s8"

_PLAIN: Mapping[str, Work] = {
    _CONVOLVE: Work(66, 2.53, 60),
    _CONVOLVE + _POINTS: Work(47, 2.4),
    _DEPTHWISE: Work(30, 18.8),
    _DEPTHWISE + _SMALL: Work(85),
    "arm_fully_connected_s8": Work(50, 3.36),
    "arm_avgpool_s8": Work(10, 15),
    "arm_max_pool_s8": Work(15, 9.4),
    "arm_elementwise_add_s8": Work(84),
    "arm_elementwise_mul_s8": Work(36),
}
_DSP: Mapping[str, Work] = {
    _CONVOLVE: Work(65, 1.65, 45),
    _CONVOLVE + _POINTS: Work(45, 1.4),
    _DEPTHWISE: Work(30, 10.1),
    _DEPTHWISE + _SMALL: Work(72),
    "arm_fully_connected_s8": Work(65, 1.85),
    "arm_avgpool_s8": Work(10, 6.3),
    "arm_max_pool_s8": Work(15, 9.4),
    "arm_elementwise_add_s8": Work(82),
    "arm_elementwise_mul_s8": Work(36),
}
_MVE: Mapping[str, Work] = {
    _CONVOLVE: Work(22.8, 0.155, 22),
    _CONVOLVE + _POINTS: Work(14.6, 0.17),
    _DEPTHWISE: Work(15.6, 0.1, 33),
    "arm_avgpool_s8": Work(3, 1.6),
    "arm_max_pool_s8": Work(15, 0.5, 25),
    "arm_elementwise_add_s8": Work(13.8),
    "arm_elementwise_mul_s8": Work(6.8),
}
_MIX: Mapping[Kind, float] = MappingProxyType({"load": 0.3, "multiply": 0.15, "plain": 0.55})
"""Approximate mix of instructions by kind."""


def call_counts(call: ExternalCall, model: McuModel) -> Counts:
    """The instructions executed by ``call``."""
    total = _instructions(call, model)
    return Counter({kind: round(total * part) for kind, part in _MIX.items()})


def _instructions(call: ExternalCall, model: McuModel) -> float:
    table = _MVE if model.mve else _DSP if "+dsp" in model.features else _PLAIN
    structures = [a for a in call.arguments if isinstance(a, Struct)]
    dims = [_numbers(s) for s in structures if s.type == "cmsis_nn_dims"]
    if not dims:
        return table[call.symbol].result * _numbers(call)[-1]
    (_, _, _, channels), (_, rows, columns, _), *_, (_, down, across, outputs) = dims
    points, taps = down * across, rows * columns
    steps = taps * (channels if call.symbol in _OVER_CHANNELS else 1)
    special = {(1, 1): _POINTS, (3, 3): _SMALL}.get((rows, columns), "")
    work = table.get(call.symbol + special) or table[call.symbol]
    return points * (outputs * (work.result + steps * work.step) + taps * work.moved)


_OVER_CHANNELS = _CONVOLVE, "arm_fully_connected_s8"


def _numbers(of: Struct | ExternalCall) -> list[int]:
    values = of.fields if isinstance(of, Struct) else of.arguments
    return [int(value.value) for value in values if isinstance(value, Const)]
