"""Operators without a handler that PyTorch can decompose."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch._decomp import _core_aten_decompositions_post_autograd, decomposition_table

from modelcc.frontends.torch.aten import Handler
from modelcc.frontends.torch.foreach import foreach_rules
from modelcc.frontends.torch.gradient_scaling import scaling_rules
from modelcc.frontends.torch.recurrent_cells import cell_rules
from modelcc.frontends.torch.transformer_layers import transformer_rules

Decompositions = dict[Any, Callable[..., Any]]


def decompositions(handlers: Mapping[str, Handler]) -> Decompositions:
    """PyTorch's decompositions of operators without a handler; those with one are kept."""
    return _of_others(torch.export.default_decompositions().items(), handlers)


def _of_others(first: Iterable[tuple[Any, Any]], handlers: Mapping[str, Handler]) -> Decompositions:
    own = {**foreach_rules(), **transformer_rules(), **cell_rules(), **scaling_rules()}
    table = {**decomposition_table, **dict(first), **own}
    table = {op: rule for op, rule in table.items() if str(op) not in UNTRACEABLE}
    return {op: rule for op, rule in table.items() if not _is_handled(op, handlers)}


def functional_decompositions(handlers: Mapping[str, Handler]) -> Decompositions:
    """As :func:`decompositions`, for graphs of which PyTorch itself may run a part.

    What it runs is not decomposed: core operators, random ones (decompositions would draw other
    numbers from its generator), those that write to their operands, and ``WITH_BACKWARD``.  Tracing
    has already decomposed composite operators, too, and export's table takes long to build.
    """
    table = _of_others(_core_aten_decompositions_post_autograd().items(), handlers)
    return {op: rule for op, rule in table.items() if not _stays_whole(op)}


UNTRACEABLE = (
    *("aten.lift_fresh.default", "aten.lift_fresh_copy.default", "aten.lift.default"),
    *("aten.complex.default", "aten.polar.default"),
)
"""Their decompositions write to views of new memory, or leave tensors created while tracing, which
cannot be operands of other operators."""

WITH_BACKWARD = ("aten._scaled_dot_product_flash_attention_for_cpu.default",)
"""Their backward operators need a result that PyTorch's decompositions do not compute."""


def _stays_whole(operator: Any) -> bool:
    tags = {torch.Tag.core, torch.Tag.nondeterministic_seeded}
    if not isinstance(operator, torch._ops.OpOverload):
        return True
    return (
        bool(tags.intersection(operator.tags))
        or operator._schema.is_mutable
        or str(operator) in WITH_BACKWARD
    )


def _is_handled(operator: Any, handlers: Mapping[str, Handler]) -> bool:
    name = str(operator).removeprefix("aten.")
    return name in handlers or name.rpartition(".")[0] in handlers
