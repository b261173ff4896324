"""Entries of tested models: name, kind, and construction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Built = tuple[torch.nn.Module, dict[str, Any]]
"""A model and its input tensors."""


class NotBuilt(Exception):  # noqa: N818 - no error of anybody
    """No small configuration of this model is known here."""


@dataclass(frozen=True)
class Entry:
    """A model, ``library/name``, of a ``kind``, and a function that builds it with its inputs."""

    name: str
    kind: str
    build: Callable[[], Built]


def randomised(model: torch.nn.Module) -> torch.nn.Module:
    """``model`` in evaluation mode, without constant tensors.

    Initial zeros, ones and small scales would hide what a layer computes.
    """
    with torch.no_grad():
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            if tensor.is_floating_point() and tensor.numel() > 1 and tensor.std() == 0:
                noise = torch.rand_like(tensor) if "var" in name else torch.randn_like(tensor)
                tensor.add_(noise, alpha=0.1)
    return model.eval()
