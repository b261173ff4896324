"""Phases of a transposed convolution: outputs that share the same taps.

With stride ``s`` the outputs ``s*q + r`` of one residue ``r`` are a plain convolution of the input
with every ``s / gcd(s, dilation)``-th tap, so no output tests divisibility.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product as cartesian
from math import gcd

from modelcc.ir.compute import Element, Operand, StageBuilder, number
from modelcc.ir.index import Index, ceildiv, floordiv, mod
from modelcc.ir.tensor import Condition
from modelcc.ops.accumulate import Point, restore
from modelcc.ops.window import Window, numbers


@dataclass(frozen=True)
class Phase:
    """Outputs ``stride*q + residue`` along one axis, ``q < positions``, and the taps they gather.

    Tap ``first + step*j`` for ``j < taps`` reads input ``q + shift - retreat*j``.
    """

    stride: int
    residue: int
    positions: Index
    taps: int
    first: int
    step: int
    shift: Index
    retreat: int

    def source(self, position: Index, tap: Index) -> Index:
        """Input index that ``tap`` of output ``stride*position + residue`` reads."""
        return position + self.shift - tap * self.retreat

    def target(self, position: Index) -> Index:
        """The output that is number ``position`` of this phase."""
        return self.stride * position + self.residue

    def conditions(self, source: Index, size: Index) -> tuple[Condition, ...]:
        """What must hold for ``source`` to lie inside an axis of ``size`` elements."""
        last = self.source(self.positions - 1, 0) - size
        low = self.source(0, self.taps - 1)
        return (
            *(() if isinstance(low, int) and low >= 0 else (Condition(0, "<=", source),)),
            *(() if isinstance(last, int) and last < 0 else (Condition(source, "<", size),)),
        )


def phases(
    kernel: int, stride: int, dilation: int, before: Index, extent: Index
) -> Iterator[Phase]:
    """The phases that together make ``extent`` outputs of an axis with ``before`` cropped."""
    step = stride // gcd(stride, dilation)
    for residue in range(stride):
        positions = ceildiv(extent - residue, stride)
        if isinstance(positions, int) and positions <= 0:
            continue
        target = before + residue
        reaching = (k for k in range(min(step, kernel)) if _meets(target, k * dilation, stride))
        first = next(reaching, None)
        if first is None:
            yield Phase(stride, residue, positions, 0, 0, 1, 0, 0)
            continue
        taps = -((first - kernel) // step)
        shift = floordiv(target - first * dilation, stride)
        yield Phase(stride, residue, positions, taps, first, step, shift, step * dilation // stride)


def choices(window: Window, extents: Sequence[Index]) -> Iterator[tuple[Phase, ...]]:
    """A phase for each axis of outputs of these ``extents``, in every combination."""
    kernel = numbers(window.kernel, "kernel extents of a transposed convolution")
    strides, dilations = numbers(window.strides, "strides"), numbers(window.dilations, "dilations")
    geometry = zip(kernel, strides, dilations, window.before, extents, strict=True)
    return cartesian(*(list(phases(*axis)) for axis in geometry))


def _meets(target: Index, offset: int, stride: int) -> bool:
    return mod(target - offset, stride) == 0


def sources(axes: Sequence[Phase], positions: Sequence[Index], taps: Sequence[Index]) -> Point:
    """Input index per axis that ``taps`` of outputs number ``positions`` read."""
    triples = zip(axes, positions, taps, strict=True)
    return tuple(phase.source(position, tap) for phase, position, tap in triples)


def reached(axes: Sequence[Phase], taps: Sequence[Index]) -> Point:
    """Kernel index per axis of ``taps``, which count only those of the phase."""
    return tuple(phase.first + phase.step * tap for phase, tap in zip(axes, taps, strict=True))


def conditions(
    axes: Sequence[Phase], place: Sequence[Index], sizes: Sequence[Index]
) -> list[Condition]:
    """What must hold for the input index ``place`` to exist."""
    triples = zip(axes, place, sizes, strict=True)
    return [c for phase, at, size in triples for c in phase.conditions(at, size)]


def fill_phase(
    at: StageBuilder,
    y: Operand,
    axes: Sequence[Phase],
    summed: Sequence[Index],
    body: Callable[[Point, Point], Element],
) -> None:
    """Fills the elements of ``y [n, c, *spatial]`` that are of phase ``axes[a]`` along axis ``a``.

    They are sums of ``body(o, r)`` over ``r`` in ``summed`` and the taps of every axis; ``o`` has
    position numbers in place of spatial indices.  Elements that no tap reaches are 0.
    """

    def write(o: Point) -> Point:
        return (*o[:2], *(phase.target(i) for phase, i in zip(axes, o[2:], strict=True)))

    positions = (*y.shape[:2], *(phase.positions for phase in axes))
    extents = (*summed, *(phase.taps for phase in axes))
    if 0 in extents:
        at.fill(y, positions, write, lambda _: number(0, y.dtype))
        return
    real = [extent for extent in extents if extent != 1]

    def whole(point: Point) -> Element:
        return body(point[: y.rank], restore(extents, point[y.rank :]))

    at.fill(y, positions, write, whole, real, "sum" if real else None)
