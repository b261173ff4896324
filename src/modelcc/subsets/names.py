"""Names of subsets; the tables themselves need the TFLite schema."""

from __future__ import annotations

SUBSET_NAMES = ("coral-edgetpu", "ethos-u55", "ethos-u65", "tflm", "cmsis-nn")
"""Values of ``modelcc check --target`` besides microcontrollers."""
