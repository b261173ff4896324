"""Dropout with masks that PyTorch draws ahead of all computation, which then stays one program.

PyTorch's operator draws a mask and applies it.  The mask depends on its generator, and on the
device, dtype and shape of the tensor, but not on its elements: it is drawn for an uninitialised
tensor, and compiled code applies it.
"""

from __future__ import annotations

import copy
import operator
from typing import Any

import torch
from torch import fx

from modelcc.frontends.torch.memory import memory_order

_ATEN: Any = torch.ops.aten


def masks_apart(module: fx.GraphModule) -> fx.GraphModule:
    """``module``, in which dropout of tensors of known sizes has no computed operand."""
    if not any(_is_known(node) for node in module.graph.nodes):
        return module
    own: Any = fx.GraphModule(module, copy.deepcopy(module.graph))
    for node in list(own.graph.nodes):
        if _is_known(node):
            _apply_mask(own.graph, node)
    own.recompile()
    return own


def _is_known(node: fx.Node) -> bool:
    """Whether ``node`` is dropout in training of a tensor with a known layout."""
    if node.target is not _ATEN.native_dropout.default or node.args[2] is not True:
        return False
    x, *_ = node.all_input_nodes
    fake = x.meta["val"]
    sizes = (*fake.shape, *fake.stride())
    return all(isinstance(n, int) for n in sizes) and memory_order(fake) is not None


def _apply_mask(graph: fx.Graph, node: fx.Node) -> None:
    """Makes ``node`` draw its mask, which subsequent products apply, as its kernel does."""
    (x,) = node.all_input_nodes
    fake, share = x.meta["val"], node.args[1]
    assert isinstance(share, int | float)

    def added(target: Any, *given: Any, **named: Any) -> fx.Node:
        made = graph.call_function(target, given, named)
        made.meta = {**x.meta, "val": fake.new_empty_strided(fake.shape, fake.stride())}
        return made

    with graph.inserting_before(node):
        where = {"dtype": fake.dtype, "device": fake.device}
        blank = added(_ATEN.empty_strided.default, [*fake.shape], [*fake.stride()], **where)
    node.args = (blank, share, True)
    results: dict[Any, Any] = {
        user.args[1]: user for user in node.users if user.target is operator.getitem
    }
    with graph.inserting_after(node):
        mask = results.get(1) or added(operator.getitem, node, 1)
    mask.meta["val"] = node.meta["val"][1]
    scale = 0.0 if share == 1 else 1 / (1 - share)
    with graph.inserting_after(mask):
        kept = added(_ATEN.mul.Tensor, x, mask)
    with graph.inserting_after(kept):
        made = added(_ATEN.mul.Tensor, kept, scale)
    if 0 in results:
        results[0].replace_all_uses_with(made)
        graph.erase_node(results[0])
