"""Image classifiers from timm."""

from __future__ import annotations

import timm
from torch import nn


def classifier(architecture: str, side: int) -> nn.Module:
    """A timm model with freshly initialised weights, for images of `side` pixels on a side."""
    usual = timm.get_pretrained_cfg(architecture)
    sized = {"img_size": side} if usual is not None and usual.fixed_input_size else {}
    return timm.create_model(architecture, pretrained=False, exportable=True, **sized)
