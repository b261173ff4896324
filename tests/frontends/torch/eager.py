"""Functions of PyTorch through compiled code, compared with eager execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import modelcc
from modelcc.frontends.torch import import_exported
from modelcc.ir.graph import Graph


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        return self.function(*tensors)


def graph_of(module: Any, inputs: tuple[Any, ...], named: tuple[int, ...] = ()) -> Graph:
    """``module`` exported; axes ``named`` of the first input have bounds, not numbers."""
    dims = {axis: torch.export.Dim(f"d{axis}", min=2, max=64) for axis in named}
    shapes = (dims or None, *(None,) * (len(inputs) - 1))
    if isinstance(module, Function):
        shapes = (shapes,)
    program = torch.export.export(module, inputs, dynamic_shapes=shapes if named else None)
    return import_exported(program)


def agree(module: Any, *inputs: Any, named: tuple[int, ...] = (), tolerance: float = 1e-5) -> Graph:
    """The graph of ``module``, a function or not, which computes what PyTorch does."""
    whole = module if isinstance(module, torch.nn.Module) else Function(module)
    whole.eval()
    with torch.no_grad():
        graph = graph_of(whole, inputs, named)
        expected = torch.utils._pytree.tree_leaves(whole(*inputs))
    found = modelcc.compile(graph, cache=None, optimize=0)(*(x.numpy() for x in inputs))
    results = torch.utils._pytree.tree_leaves(found)
    for ours, theirs in zip(results, expected, strict=True):
        assert ours.dtype == theirs.numpy().dtype
        np.testing.assert_allclose(ours, theirs.numpy(), tolerance, tolerance)
    return graph
