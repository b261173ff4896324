"""Quantisation-aware training: integer arithmetic is simulated, then converted."""

from modelcc.nn.quantization.fake import FakeQuantize, fake_quantize
from modelcc.nn.quantization.layers import (
    ByteLayer,
    SimulatedLayer,
    calibrated,
    converted,
    prepared,
)

__all__ = [
    "ByteLayer",
    "FakeQuantize",
    "SimulatedLayer",
    "calibrated",
    "converted",
    "fake_quantize",
    "prepared",
]
