"""Operators without a handler that PyTorch itself can express by others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._decomp import decomposition_table

from modelcc.frontends.torch.aten import Handler

Decompositions = dict[Any, Callable[..., Any]]


def decompositions(handlers: Mapping[str, Handler]) -> Decompositions:
    """PyTorch's own rules for what has no handler; what has one stays whole."""
    table: Decompositions = dict(torch.export.default_decompositions().items())
    for operator, rule in decomposition_table.items():
        table.setdefault(operator, rule)
    return {op: rule for op, rule in table.items() if not _is_handled(op, handlers)}


def _is_handled(operator: Any, handlers: Mapping[str, Handler]) -> bool:
    name = str(operator).removeprefix("aten.")
    return name in handlers or name.rpartition(".")[0] in handlers
