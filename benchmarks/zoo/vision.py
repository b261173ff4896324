"""Image classifiers from timm."""

from __future__ import annotations

import timm
from torch import nn


def classifier(architecture: str) -> nn.Module:
    """A timm model with freshly initialised weights."""
    return timm.create_model(architecture, pretrained=False, exportable=True)
