"""Tensor subscripts that PyTorch reads as numbers, which no backend can trace."""

from __future__ import annotations

import operator
from typing import Any, cast

import torch
from torch import fx
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils._pytree import tree_leaves

from modelcc.frontends.torch.locations import location

_NUMBERS = (torch.int8, torch.int16, torch.int32, torch.int64)
"""Dtypes of which PyTorch takes an element as a number; others are masks."""


def check_positions(module: fx.GraphModule) -> None:
    """Checks that no subscript of ``module``, which AOTAutograd failed to trace, is an integer
    scalar tensor, as in ``x[:, position]``.

    PyTorch takes its element as a number, whose value Dynamo guards.  DataDependentOutputException
    names the line and the remedy; Dynamo then breaks the graph.
    """
    for node in module.graph.nodes:
        if node.target in (operator.getitem, operator.setitem):
            for index in tree_leaves(node.args[1]):
                if isinstance(index, fx.Node) and _is_number(index):
                    raise DataDependentOutputException(cast(Any, _message(node, index)))


def _is_number(index: fx.Node) -> bool:
    fake = index.meta.get("example_value")
    return isinstance(fake, torch.Tensor) and not fake.dim() and fake.dtype in _NUMBERS


def _message(node: fx.Node, index: fx.Node) -> str:
    return (
        f"{'/'.join(location(node))}: PyTorch takes the tensor {index.name!r}, a subscript without "
        "axes, for a number that it must know\n  hint: give the position an axis, as position[None]"
    )
