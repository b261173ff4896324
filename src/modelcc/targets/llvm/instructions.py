"""What processors may have instructions for, and kernels can do without."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.targets.isa.templates import Encoding


@dataclass(frozen=True)
class Instructions:
    """Instructions of a processor, which has ``features``; what it lacks is made from others.

    ``encodings`` are its own ones for what kernels ask for by name or by form,
    ``half_conversions`` tells whether it converts between f16 and f32, ``brain_rounding`` whether
    it rounds f32 to bf16, subnormal numbers too, ``rounding`` whether it rounds floats to whole
    numbers, and ``extrema`` whether it has the larger of two f32, NaN if one of them is.
    """

    encodings: tuple[Encoding, ...] = ()
    half_conversions: bool = False
    brain_rounding: bool = False
    rounding: bool = False
    extrema: bool = False
    features: tuple[str, ...] = ()


NONE = Instructions()
"""What every processor can do."""
