"""Results of a graph that alias memory, as PyTorch's own views do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, cast

import numpy as np
import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from modelcc.frontends.torch.memory import hint, memory_order
from modelcc.ir.types import Array

EFFORT = 10_000
"""Steps that NumPy may take to decide whether two views overlap; else they are assumed to."""


def shared_results(graph: fx.Graph, results: Iterable[object]) -> dict[fx.Node, fx.Node]:
    """The ``results`` to be returned as views of other nodes, and their bases.

    These are views of arguments, and of nodes that are results themselves or have another,
    overlapping view among the results: writes to one are visible in the other.
    """
    owners = _owners(graph.nodes)
    views: dict[fx.Node, list[fx.Node]] = {}
    whole = set[fx.Node]()
    for node in dict.fromkeys(r for r in results if isinstance(r, fx.Node)):
        owner = owners.get(_memory(node), node)
        if owner is node:
            whole.add(node)
        else:
            views.setdefault(owner, []).append(node)
    return {
        view: owner
        for owner, group in views.items()
        if _is_base(owner) and (owner in whole or owner.op == "placeholder" or _overlap(group))
        for view in group
    }


def _owners(nodes: Iterable[fx.Node]) -> dict[object, fx.Node]:
    """The first node of each storage."""
    owners: dict[object, fx.Node] = {}
    for node in nodes:
        owners.setdefault(_memory(node), node)
    return owners


def _memory(node: fx.Node) -> object:
    """A key of a node's storage."""
    fake = node.meta.get("val")
    if not isinstance(fake, torch.Tensor) or fake.layout != torch.strided:
        return node
    return fake.untyped_storage()._cdata


def _is_base(node: fx.Node) -> bool:
    """Whether views of a node's memory are defined by their strides: it is an argument, or computed
    and fills its memory."""
    if node.op == "placeholder":
        return True
    fake: Any = node.meta["val"]
    own, size = fake.untyped_storage().nbytes(), fake.numel() * fake.element_size()
    filled = memory_order(fake) is not None and statically_known_true(own == size)
    return filled and node.op == "call_function"


def _overlap(views: Sequence[fx.Node]) -> bool:
    """Whether any two of these overlap, for the sizes that were traced."""
    fakes: list[Any] = [node.meta["val"] for node in views]
    if len(fakes) < 2:
        return False
    if any(hint(n) is None for f in fakes for n in (*f.shape, *f.stride(), f.storage_offset())):
        return True
    memory = np.empty(hint(fakes[0].untyped_storage().nbytes()) or 0, np.uint8)  # never written
    pairs = combinations([_array(fake, memory) for fake in fakes], 2)
    return any(_share(one, other) for one, other in pairs)


def _array(fake: Any, memory: Array) -> Array:
    width = fake.element_size()
    shape, strides = ([cast(int, hint(n)) for n in ns] for ns in (fake.shape, fake.stride()))
    first = cast(int, hint(fake.storage_offset())) * width
    return np.ndarray(shape, f"V{width}", memory, first, [s * width for s in strides])


def _share(one: Array, other: Array) -> bool:
    try:
        return np.shares_memory(one, other, cast(Any, EFFORT))  # any number, contrary to its stub
    except np.exceptions.TooHardError:
        return True
