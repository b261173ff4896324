"""Makes torchvision importable with a torch it was not built for.

timm and transformers import torchvision, whose import looks two operators up. A CUDA wheel of
torchvision next to a CPU torch cannot load the library that defines them; no model here uses them.
"""

from __future__ import annotations

import torch

try:
    import torchvision
except RuntimeError:
    for _name in ("nms", "qnms"):
        _schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        torch.library.define(f"torchvision::{_name}", _schema)
    import torchvision

VERSION: str = torchvision.__version__
