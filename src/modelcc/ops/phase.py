"""Phases of a transposed convolution: outputs that share the same taps.

With stride ``s`` the outputs ``s*q + r`` of one residue ``r`` are a plain convolution of the input
with every ``s / gcd(s, dilation)``-th tap, so no output tests divisibility.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

from modelcc.ir.index import Index, ceildiv, floordiv, mod
from modelcc.ir.tensor import Condition


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


def _meets(target: Index, offset: int, stride: int) -> bool:
    return mod(target - offset, stride) == 0
