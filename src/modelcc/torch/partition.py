"""Partitioning of a traced graph: what modelcc compiles and what PyTorch runs itself."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from modelcc.frontends.kit.errors import OUR_FAULT, Unsupported
from modelcc.frontends.torch.effects import is_value_check
from modelcc.frontends.torch.partial_conversion import HOST
from modelcc.frontends.torch.traced import Traced, Writes, import_traced
from modelcc.ir.errors import ModelError

PREFIX = "modelcc_"
AFTER = "modelcc_after"
"""Name of an operand that keeps operators in order while the graph is split."""

Frozen = Mapping[int, torch.Tensor]
"""Constant arguments, by position."""


@dataclass(frozen=True)
class Parted:
    """A graph whose ``parts``, by the names of its modules, are compiled.

    ``whole`` is set instead if nothing is left for PyTorch.  ``problems`` are the operators that
    PyTorch runs because modelcc cannot, ``compiled`` the number of others.
    """

    module: fx.GraphModule
    parts: Mapping[str, Traced]
    whole: Traced | None
    problems: tuple[Unsupported, ...]
    compiled: int


def with_constants(module: fx.GraphModule, frozen: Frozen) -> fx.GraphModule:
    """A copy of ``module`` with attributes in place of the arguments in ``frozen``."""
    own: Any = fx.GraphModule(module, copy.deepcopy(module.graph))
    arguments = [node for node in own.graph.nodes if node.op == "placeholder"]
    for position, tensor in frozen.items():
        node, name = arguments[position], f"frozen_{position}"
        own.register_buffer(name, tensor)
        with own.graph.inserting_after(arguments[-1]):
            constant = own.graph.get_attr(name)
        constant.meta = copy.copy(node.meta)
        node.replace_all_uses_with(constant)
    own.recompile()
    return own


def parted(
    module: fx.GraphModule, sharing: bool = False, writes: Writes = (), device: str = HOST
) -> Parted:
    """``module`` with submodules for what can be imported, and is worth a call.

    ``sharing``, ``writes`` and ``device`` are those of :func:`import_traced`.
    """
    whole = import_traced(module, sharing=sharing, writes=writes, device=device)
    if not whole.problems:
        count = _computing(module.graph.nodes)
        return Parted(module, {}, whole if count else None, (), count)
    problems = {node.name: p for node, p in whole.problems.items()}
    while True:
        split, names = _split(module, problems.keys() | _makers(module, problems.keys()))
        parts = {n: import_traced(_module(split, n), n, sharing, (), device) for n in names}
        found = {node.name: p for part in parts.values() for node, p in part.problems.items()}
        if not found:
            count = sum(_computing(_module(split, name).graph.nodes) for name in names)
            return Parted(split, parts, None, tuple(problems.values()), count)
        if found.keys() <= problems.keys():
            raise ModelError(f"{', '.join(found)} cannot be taken out of the graph", (), OUR_FAULT)
        problems |= found


def _makers(module: fx.GraphModule, refused: Collection[str]) -> set[str]:
    """Nodes without inputs that create tensors only for operators that PyTorch runs."""
    return {
        node.name
        for node in module.graph.nodes
        if node.op == "call_function" and node.users and not node.all_input_nodes
        and all(user.name in refused for user in node.users)
    }  # fmt: skip


def _module(whole: Any, name: str) -> fx.GraphModule:
    return whole.get_submodule(name)


class _Importable(OperatorSupportBase):
    def __init__(self, refused: Collection[str]) -> None:
        self._refused = refused

    def is_node_supported(self, submodules: Mapping[str, Any], node: fx.Node) -> bool:
        """Whether ``node`` may be compiled."""
        constant = node.op == "get_attr" and isinstance(node.meta.get("val"), torch.Tensor)
        return (constant or node.op == "call_function") and node.name not in self._refused


def _split(module: fx.GraphModule, refused: Collection[str]) -> tuple[fx.GraphModule, list[str]]:
    """A copy in which all nodes except ``refused`` ones are in submodules, and the names of
    these."""
    own = fx.GraphModule(module, copy.deepcopy(module.graph))
    _chain([node for node in own.graph.nodes if node.name in refused])
    maker = CapabilityBasedPartitioner(own, _Importable(refused), allows_single_node_partition=True)
    worthy = [p for p in maker.propose_partitions() if _computing(p.nodes)]
    split = maker.fuse_partitions(worthy, prefix=PREFIX)
    for node in split.graph.nodes:
        node.kwargs = {name: given for name, given in node.kwargs.items() if name != AFTER}
    split.recompile()
    return split, [n.target for n in split.graph.nodes if n.op == "call_module"]


def _chain(nodes: Sequence[fx.Node]) -> None:
    """Makes each of ``nodes`` with observable order, or a part of its results, an operand of the
    next.

    Of several results a part, since the partitioner ignores values that are read by parts alone.
    """
    for before, node in pairwise([node for node in nodes if _is_ordered(node)]):
        parts = [user for user in before.users if user.target is operator.getitem]
        node.kwargs = {**node.kwargs, AFTER: parts[0] if parts else before}


def _is_ordered(node: fx.Node) -> bool:
    """Whether an operator draws random numbers, or may have side effects."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return True
    drawing = torch.Tag.nondeterministic_seeded in node.target.tags
    return drawing or node.target._schema.is_mutable or node.target.namespace != "aten"


def _computing(nodes: Any) -> int:
    """The number of ``nodes`` that compute elements; views and sizes cost PyTorch nothing."""
    return sum(map(_computes, nodes))


def _computes(node: fx.Node) -> bool:
    if node.op != "call_function" or node.target is operator.getitem or is_value_check(node):
        return False
    view = getattr(node.target, "is_view", False)
    return not view and isinstance(node.meta.get("val"), torch.Tensor | tuple | list)


def joined(parts: Parted, calls: Mapping[str, Callable[..., Any]]) -> Any:
    """The graph with ``calls`` in place of its parts."""
    module = cast(Any, parts.module)
    for name, call in calls.items():
        delattr(module, name)
        setattr(module, name, call)
    module.recompile()
    return module
