"""What processors may have instructions for, and kernels can do without."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Instructions:
    """Instructions of a processor; what it lacks is made from others.

    ``byte_dots`` is the width in bits of the widest one for dot products of bytes (0: none),
    ``short_dots`` that of the widest one for sums of two neighbouring products of i16,
    ``half_conversions`` tells whether it converts between f16 and f32, ``rounding`` whether it
    rounds floats to whole numbers.
    """

    byte_dots: int = 0
    short_dots: int = 0
    half_conversions: bool = False
    rounding: bool = False


NONE = Instructions()
"""What every processor can do."""
