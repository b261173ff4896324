"""Tiles for windows that slide over vectors: depthwise convolution and pooling.

Every tap of a window reads a whole vector that neighbouring output points need as well.  The tile
is chosen so that its accumulators and one row of inputs fit in registers, and taps are issued in
the order of their inputs, so that each input vector is loaded once, next to its uses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from math import prod

from modelcc.ir.index import Index, coefficient
from modelcc.ir.tensor import Read
from modelcc.schedule.nest import LoopVar, Nest
from modelcc.targets.cpu.machine import CpuModel

MOST_TAPS = 32
"""Maximum number of taps of two axes that are fully unrolled."""
LONGEST = 64
"""Maximum number of taps of one axis that are unrolled; longer windows are loops, like any
reduction."""


@dataclass(frozen=True)
class SlidingWindow:
    """A reduction loop sliding along a parallel loop: ``step`` taps per output point."""

    point: LoopVar
    tap: LoopVar
    step: int

    def inputs(self, points: int, taps: int) -> int:
        """Distinct input positions of ``points`` neighbouring windows of ``taps``."""
        return (points - 1) * self.step + taps


def windows(read: Read, nest: Nest) -> list[SlidingWindow]:
    """The windows that ``read`` slides along, outermost first."""
    found: list[SlidingWindow] = []
    for point in nest.parallel:
        stride = _stride(read, point.name)
        for tap in nest.reduce:
            step = _stride(read, tap.name)
            if not isinstance(stride, int) or not isinstance(step, int) or step <= 0:
                continue
            overlaps = isinstance(tap.extent, int) and 0 < stride <= (tap.extent - 1) * step
            if overlaps and stride % step == 0:
                found.append(SlidingWindow(point, tap, stride // step))
    return found


def _stride(read: Read, variable: str) -> Index | None:
    return coefficient(read.indices[0], variable) if len(read.indices) == 1 else None


def are_short(found: Sequence[SlidingWindow]) -> bool:
    """Whether there are windows, of which the innermost has several points and few enough taps to
    unroll."""
    if not found or found[-1].point.extent == 1:
        return False
    taps = found[-1].tap.extent
    return isinstance(taps, int) and taps <= LONGEST


def sliding_tiles(
    found: Sequence[SlidingWindow], machine: CpuModel
) -> Iterator[tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]]:
    """(points, unrolling) of tiles over one or two windows, best first."""
    inner = found[-1]
    outer = found[-2] if len(found) > 1 else None
    taps = _unrolled_taps(inner, outer)
    most = machine.vector_registers // 2
    candidates = list(_candidates(inner, outer, most))
    names = [inner.tap.name] + ([outer.tap.name] if outer is not None else [])
    unroll = tuple(zip(names, taps, strict=False))
    for width, height in sorted(candidates, key=lambda c: _cycles(c, taps, inner, outer, machine)):
        points = [(inner.point.name, width)]
        points += [(outer.point.name, height)] if outer is not None else []
        yield tuple(points), unroll


def _unrolled_taps(inner: SlidingWindow, outer: SlidingWindow | None) -> tuple[int, ...]:
    width = inner.tap.extent if isinstance(inner.tap.extent, int) else 1
    if outer is None or not isinstance(outer.tap.extent, int):
        return (width,)
    whole = width * outer.tap.extent <= MOST_TAPS
    return (width, outer.tap.extent if whole else 1)


def _candidates(
    inner: SlidingWindow, outer: SlidingWindow | None, most: int
) -> Iterator[tuple[int, int]]:
    widths = range(1, min(most, _extent(inner)) + 1)
    heights = range(1, 5) if outer is not None else range(1, 2)
    for w, h in cartesian(widths, heights):
        if w * h <= most and (outer is None or h <= _extent(outer)):
            yield w, h


def _extent(window: SlidingWindow) -> int:
    extent = window.point.extent
    return extent if isinstance(extent, int) else 64


def _cycles(
    size: tuple[int, int],
    taps: tuple[int, ...],
    inner: SlidingWindow,
    outer: SlidingWindow | None,
    machine: CpuModel,
) -> float:
    """Estimated cycles for all tiles of a plane, per vector of channels."""
    w, h = size
    loads = inner.inputs(w, taps[0])
    rolled = 1.0
    if outer is not None:
        loads *= outer.inputs(h, taps[1]) if taps[1] > 1 else h
        extent = outer.tap.extent
        rolled = 1.0 if taps[1] > 1 or not isinstance(extent, int) else float(extent)
    arithmetic = w * h * prod(taps) / machine.fmas
    busy = max(arithmetic, (loads + prod(taps)) / machine.loads, machine.fma_latency)
    tiles = -(-_extent(inner) // w) * (-(-_extent(outer) // h) if outer is not None else 1)
    return tiles * (rolled * (busy + 1) + w * h)
