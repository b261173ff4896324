"""Optional instructions of processors, which kernels can do without."""

from __future__ import annotations

from dataclasses import dataclass

from modelcc.targets.isa.templates import Encoding


@dataclass(frozen=True)
class Instructions:
    """Instructions of a processor with ``features``; missing ones are expanded to others.

    ``encodings`` are those that kernels request by name or by form, ``half_conversions`` tells
    whether it converts between f16 and f32, ``brain_rounding`` whether it rounds f32 to bf16,
    including subnormal numbers, ``rounding`` whether it rounds floats to integers, and ``extrema``
    whether it has the maximum of two f32, NaN if one of them is.
    """

    encodings: tuple[Encoding, ...] = ()
    half_conversions: bool = False
    brain_rounding: bool = False
    rounding: bool = False
    extrema: bool = False
    features: tuple[str, ...] = ()


NONE = Instructions()
"""The common subset of all processors."""
