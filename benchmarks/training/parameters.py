"""Initial parameters and a batch of a model, created by PyTorch, for all engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.training.shapes import BATCHES
from benchmarks.training.torch_models import MODELS


def write_parameters(name: str, file: Path) -> Path:
    """An ``.npz`` with the model's state, ``batch`` and ``labels``; its path."""
    torch.manual_seed(0)
    shape, model = BATCHES[name], MODELS[name]()
    state: dict[str, Any] = {n: t.detach().numpy() for n, t in model.state_dict().items()}
    labels = torch.arange(shape[0]) % 10
    np.savez(file, batch=torch.randn(shape).numpy(), labels=labels.numpy(), **state)
    return file
