"""Mutations of arguments, which AOTAutograd puts at the end of its graphs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

_COPY: Any = torch.ops.aten.copy_.default


def without_writes(module: fx.GraphModule) -> tuple[fx.GraphModule, tuple[int, ...]]:
    """``module`` without copies to arguments that are not read afterwards; its last results are the
    copies' sources, for the arguments at these positions."""
    arguments = [node for node in module.graph.nodes if node.op == "placeholder"]
    order = {node: place for place, node in enumerate(module.graph.nodes)}
    found = [node for node in module.graph.nodes if _is_last(node, order)]
    if not found:
        return module, ()
    own: Any = fx.GraphModule(module, copy.deepcopy(module.graph))
    twins = dict(zip(module.graph.nodes, own.graph.nodes, strict=True))
    copies: list[Any] = [twins[node] for node in found]
    output = own.graph.output_node()
    output.args = ((*output.args[0], *(node.args[1] for node in copies)),)
    for node in copies:
        node.replace_all_uses_with(node.args[0])
        own.graph.erase_node(node)
    own.recompile()
    return own, tuple(arguments.index(node.args[0]) for node in found)


def _is_last(node: fx.Node, order: Mapping[fx.Node, int]) -> bool:
    """Whether ``node`` copies to an argument after all other uses of both, except as results."""
    if node.target is not _COPY or node.kwargs or len(node.args) != 2:
        return False
    target, value = node.args
    if not isinstance(target, fx.Node) or not isinstance(value, fx.Node):
        return False
    readers = [user for user in (*target.users, *node.users) if user.op != "output"]
    return target.op == "placeholder" and all(order[user] <= order[node] for user in readers)


class WritingCall:
    """A call that returns new values of arguments after its results, and writes them to these."""

    def __init__(
        self, call: Callable[[list[Any]], Any], places: Sequence[int], done: Sequence[bool]
    ) -> None:
        """``call``, whose last results are new values of the arguments at ``places``; some are
        already written (``done``)."""
        self._boxed_call = True  # on the instance: wrappers copy its dictionary
        self._call = call
        self._places = tuple(places)
        self._done = tuple(done)

    def __call__(self, arguments: list[Any]) -> Any:
        targets = [arguments[place] for place in self._places]
        results = self._call(arguments)
        own = len(results) - len(targets)
        left = [p for p in zip(targets, results[own:], self._done, strict=True) if not p[2]]
        places = [target.untyped_storage().data_ptr() for target, *_ in left]
        with torch.no_grad():
            values = [
                value.clone() if value.untyped_storage().data_ptr() in places else value
                for _, value, _ in left
            ]
            for (target, *_), value in zip(left, values, strict=True):
                target.copy_(value)
        return tuple(results[:own])
