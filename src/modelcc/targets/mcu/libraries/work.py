"""About how many instructions calls of CMSIS-NN take.

Numbers are fitted to what QEMU counts of functions of version 7, as GCC builds them with -O2, in
layers of keyword spotting and ResNet-8; they are within 15 % of these.
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
    """Instructions for each number of the result, each that is multiplied or compared for it, and
    each that a window moves for all channels of the result."""

    result: float
    step: float = 0.0
    moved: float = 0.0


_POINTS = " of points"
"""After the name of a function: of windows of one pixel."""

_PLAIN: Mapping[str, Work] = {
    "arm_convolve_wrapper_s8": Work(61, 2.5, 6.1),
    "arm_convolve_wrapper_s8" + _POINTS: Work(47, 2.4),
    "arm_depthwise_conv_wrapper_s8": Work(30, 5.9),
    "arm_fully_connected_s8": Work(30, 3),
    "arm_avgpool_s8": Work(10, 15),
    "arm_max_pool_s8": Work(7, 7),
    "arm_elementwise_add_s8": Work(84),
    "arm_elementwise_mul_s8": Work(30),
}
_DSP: Mapping[str, Work] = {
    "arm_convolve_wrapper_s8": Work(67, 1.6, 3.1),
    "arm_convolve_wrapper_s8" + _POINTS: Work(45, 1.4),
    "arm_depthwise_conv_wrapper_s8": Work(25, 5),
    "arm_fully_connected_s8": Work(30, 1.5),
    "arm_avgpool_s8": Work(10, 6.3),
    "arm_max_pool_s8": Work(7, 5),
    "arm_elementwise_add_s8": Work(82),
    "arm_elementwise_mul_s8": Work(30),
}
_MVE: Mapping[str, Work] = {
    "arm_convolve_wrapper_s8": Work(30, 0.155, 0.4),
    "arm_convolve_wrapper_s8" + _POINTS: Work(14.6, 0.17),
    "arm_depthwise_conv_wrapper_s8": Work(9, 1.34),
    "arm_avgpool_s8": Work(3, 1.6),
    "arm_max_pool_s8": Work(1, 0.7),
    "arm_elementwise_add_s8": Work(13.8),
    "arm_elementwise_mul_s8": Work(7),
}
_MIX: Mapping[Kind, float] = MappingProxyType({"load": 0.3, "multiply": 0.15, "plain": 0.55})
"""Kinds of instructions, about."""


def call_counts(call: ExternalCall, model: McuModel) -> Counts:
    """What ``call`` executes."""
    total = _instructions(call, model)
    return Counter({kind: round(total * part) for kind, part in _MIX.items()})


def _instructions(call: ExternalCall, model: McuModel) -> float:
    table = _MVE if model.mve else _DSP if "+dsp" in model.features else _PLAIN
    structures = [a for a in call.arguments if isinstance(a, Struct)]
    dims = [_numbers(s) for s in structures if s.type == "cmsis_nn_dims"]
    if not dims:
        return table[call.symbol].result * _numbers(call)[-1]
    (_, _, _, channels), (_, rows, columns, _), *_, (_, down, across, outputs) = dims
    summed = channels if call.symbol in _OVER_CHANNELS else 1
    points, steps = down * across, rows * columns * summed
    single = _POINTS if call.symbol + _POINTS in table and rows * columns == 1 else ""
    work = table[call.symbol + single]
    moved = work.moved * points * steps
    return points * outputs * (work.result + steps * work.step) + moved


_OVER_CHANNELS = "arm_convolve_wrapper_s8", "arm_fully_connected_s8"


def _numbers(of: Struct | ExternalCall) -> list[int]:
    values = of.fields if isinstance(of, Struct) else of.arguments
    return [int(value.value) for value in values if isinstance(value, Const)]
