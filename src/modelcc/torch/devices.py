"""The device of a traced graph, and the target to compile for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from modelcc.frontends.torch.partial_conversion import HOST
from modelcc.ir.errors import ModelError

GPU = "cuda"
"""PyTorch's name for NVIDIA GPUs, and for AMD GPUs if it was built for ROCm."""

_WHERE = ("torch.compile",)


def graph_device(module: fx.GraphModule) -> torch.device | None:
    """The GPU of the inputs of a graph traced by Dynamo, None if all are on the host;
    :class:`ModelError` for other devices, and for several."""
    found: torch.device | None = None
    for node in module.graph.nodes:
        fake = node.meta.get("example_value")
        if node.op != "placeholder" or not isinstance(fake, torch.Tensor):
            continue
        device = fake.device
        if device.type == HOST:
            continue
        if device.type != GPU:
            hint = "move model and inputs to the CPU, or to a GPU of NVIDIA's or AMD's"
            raise ModelError(f"its input {node.name!r} is on {device}", _WHERE, hint)
        if found not in (None, device):
            hint = "a graph runs on one GPU: move model and inputs there"
            raise ModelError(f"its inputs are on {found} and {device}", _WHERE, hint)
        found = device
    return found


def target_on(device: torch.device, arguments: Mapping[str, Any]) -> str:
    """The target for a graph on a GPU: the requested one, or that of this GPU, with its index;
    :class:`ModelError` for one on another device."""
    kind, index = "amdgpu" if torch.version.hip else "cuda", str(device.index or 0)
    asked = str(arguments.get("target", kind))
    first, *words = asked.split(":")
    number = next((word for word in words if word.isdecimal()), index)
    if (first, number) != (kind, index):
        hint = f"leave the option out, or move model and inputs to where {asked!r} takes them"
        raise ModelError(f"its inputs are on {device}, and not where {asked!r} is", _WHERE, hint)
    return asked if number in words else f"{asked}:{index}"
