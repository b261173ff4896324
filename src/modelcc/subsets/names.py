"""What subsets are called; the tables themselves need the schema of TFLite."""

from __future__ import annotations

SUBSET_NAMES = ("coral-edgetpu", "ethos-u55", "ethos-u65", "tflm", "cmsis-nn")
"""What ``modelcc check --target`` takes besides microcontrollers."""
