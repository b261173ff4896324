"""Shapes common to the models of the comparison in all frameworks."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

WIDTHS = ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1),
          (256, 512, 2), (512, 512, 1))  # fmt: skip
"""Blocks of ResNet-18: channels in and out, and the stride."""

BATCHES: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "mlp": (64, 784),
        "cnn": (64, 1, 28, 28),
        "resnet18": (32, 3, 32, 32),
        "transformer": (8, 128, 256),
        "lstm": (16, 32, 64),
    }
)
"""The shape of a batch of each model; labels are ten classes."""
