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


def functional_decompositions(handlers: Mapping[str, Handler]) -> Decompositions:
    """As :func:`decompositions`, for graphs of which PyTorch itself may run a part.

    What it runs stays whole: operators of its core, random ones (others would take other numbers
    of its generator), those that write to their operands, ``WITH_BACKWARD`` and
    ``OF_CONTENTS``.
    """
    return {op: rule for op, rule in decompositions(handlers).items() if not _stays_whole(op)}


OF_CONTENTS = ("aten.lift_fresh.default", "aten.lift_fresh_copy.default", "aten.lift.default")
"""What takes a tensor that is there while tracing, of which no other operator may be given."""

WITH_BACKWARD = ("aten._scaled_dot_product_flash_attention_for_cpu.default",)
"""Their backward operators want a result that PyTorch's rules do not compute."""


def _stays_whole(operator: Any) -> bool:
    tags = {torch.Tag.core, torch.Tag.nondeterministic_seeded}
    if not isinstance(operator, torch._ops.OpOverload):
        return True
    return (
        bool(tags.intersection(operator.tags))
        or operator._schema.is_mutable
        or str(operator) in (*WITH_BACKWARD, *OF_CONTENTS)
    )


def _is_handled(operator: Any, handlers: Mapping[str, Handler]) -> bool:
    name = str(operator).removeprefix("aten.")
    return name in handlers or name.rpartition(".")[0] in handlers
