"""What a model is that is tried: its name, its kind, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Built = tuple[torch.nn.Module, dict[str, Any]]
"""A model and the tensors that it is called with."""


class NotBuilt(Exception):  # noqa: N818 - no error of anybody
    """This model has no small form that is known here."""


@dataclass(frozen=True)
class Entry:
    """A model, ``library/name``, of a ``kind``, and how it is made with its inputs."""

    name: str
    kind: str
    build: Callable[[], Built]


def randomised(model: torch.nn.Module) -> torch.nn.Module:
    """``model``, ready for inference, in which no tensor is one number all over.

    Zeros, ones and small scales, as fresh models have them, would hide what a layer computes.
    """
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.is_floating_point() and tensor.numel() > 1 and tensor.std() == 0:
                noise = torch.rand_like(tensor) if "var" in name else torch.randn_like(tensor)
                tensor.add_(noise, alpha=0.1)
    return model.eval()
