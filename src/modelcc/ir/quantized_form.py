"""How an op computes on integers of few bits: a facet that quantisation of models reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QuantizedForm:
    """What becomes of the operands and the result of an op.

    ``activations`` are numbers of operands, each with one scale (None: all operands are).
    ``weights`` is one that has a scale for each slice of ``axis`` if it is constant; they are those
    of slices ``channel`` of the result.  ``bias`` is added to sums of products, in 32 bits.
    ``moves``: the result consists of elements of its operands, so that all have one scale.
    ``follows``: it is computed of what its only varying operand is before that is rounded.
    """

    activations: tuple[int, ...] | None = (0,)
    weights: int | None = None
    axis: int = 0
    channel: int = 0
    bias: int | None = None
    moves: bool = False
    follows: bool = False

    def operands(self, count: int) -> tuple[int, ...]:
        """Numbers of those of ``count`` operands that are activations."""
        return tuple(range(count)) if self.activations is None else self.activations


MOVES = QuantizedForm(moves=True)
"""Data movement of the first operand."""

FOLLOWS = QuantizedForm(follows=True)
"""A function that is computed with what comes before."""

ROUNDED = QuantizedForm()
"""A function from integers to integers."""
