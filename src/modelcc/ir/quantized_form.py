"""An op's computation on low-bit integers: a facet that model quantization reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class QuantizedForm:
    """The treatment of the operands and the result of an op.

    ``activations`` are operand positions, each with one scale (None: all operands).
    ``weights`` is one with a scale per slice of ``axis`` if it is constant; these are slices
    ``channel`` of the result.  ``bias`` is added to sums of products, in 32 bits.
    ``moves``: the result consists of elements of its operands, so that all have one scale.
    ``follows``: it is computed from its only varying operand before that is rounded.
    """

    activations: tuple[int, ...] | None = (0,)
    weights: int | None = None
    axis: int = 0
    channel: int = 0
    bias: int | None = None
    moves: bool = False
    follows: bool = False

    def operands(self, count: int) -> tuple[int, ...]:
        """Positions of the activations among ``count`` operands."""
        return tuple(range(count)) if self.activations is None else self.activations


MOVES = QuantizedForm(moves=True)
"""Data movement of the first operand."""

FOLLOWS = QuantizedForm(follows=True)
"""A function that is fused into its producer."""

ROUNDED = QuantizedForm()
"""A function from integers to integers."""
