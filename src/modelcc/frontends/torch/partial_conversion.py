"""Partial conversion of a graph: unsupported nodes are listed, and their results become inputs."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import fx

from modelcc.frontends.kit.errors import Unsupported, UnsupportedForm, unsupported
from modelcc.frontends.torch.dtypes import dtype_of
from modelcc.frontends.torch.effects import is_value_check
from modelcc.frontends.torch.graph_conversion import GraphConversion
from modelcc.frontends.torch.locations import location, operator_of
from modelcc.frontends.torch.sizes import index_of
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, symbols

HOST = "cpu"
ITEM = "aten._local_scalar_dense.default"
"""The element of a tensor of one."""

ASSERTIONS = (
    *("_assert_async.default", "_assert_async.msg", "_functional_assert_async.msg"),
    *("_assert_scalar.default", "_functional_assert_scalar.default"),
)
"""Operators that raise if a value is false."""


@dataclass(frozen=True)
class PartialConversion(GraphConversion):
    """A conversion that continues after nodes that cannot be converted.

    ``reasons`` say why, by node; users of such a node see an input in its place.  ``numbers`` are
    sizes that the graph reads from memory, on which no extent may depend.  Results are on a device
    of the kinds ``places``.
    """

    reasons: dict[fx.Node, Unsupported] = field(default_factory=dict[fx.Node, Unsupported])
    numbers: set[str] = field(default_factory=set[str])
    places: Sequence[str] = (HOST,)

    def run(self, graph: fx.Graph) -> None:
        """As in the base class; conditions and numbers that PyTorch, or the graph's caller, needs
        are listed."""
        super().run(graph)
        for node in reversed(list(graph.nodes)):
            number = isinstance(node.meta.get("val"), torch.SymBool | torch.SymFloat)
            if number and self._is_wanted(node):
                self.give_up(node, "its result is a number that is no size")

    def _is_wanted(self, node: fx.Node) -> bool:
        users = (user for user in node.users if user.op == "output" or user in self.reasons)
        return node.op == "call_function" and any(users)

    def convert(self, node: fx.Node) -> None:
        """As in the base class, but the failure of one node does not abort the conversion."""
        if node.target is operator.getitem and self.values[node.all_input_nodes[0]] is None:
            self._give(node)  # PyTorch notes no results of some operators, only parts of them
            return
        if is_value_check(node):
            self.values[node] = (None, None)  # the graph's caller performs the check
            return
        try:
            _check_assertion(node)
            _check_results(self, node)
            self.values[node] = self.value_of(node, location(node))
        except (UnsupportedForm, ModelError, NotImplementedError) as reason:
            self.give_up(node, str(reason))

    def give_up(self, node: fx.Node, reason: str) -> None:
        """Lists ``node`` and makes its results inputs."""
        where = "/".join(location(node))
        self.reasons[node] = Unsupported(where, operator_of(node), "", reason)
        self._give(node)

    def _give(self, node: fx.Node) -> None:
        fake = node.meta.get("val")
        many = isinstance(fake, tuple | list)
        names = [self._given(f"{node.name}.{i}", f) for i, f in enumerate(_results(node))]
        self.values[node] = tuple(names) if many else names[0]

    def _given(self, name: str, fake: Any) -> str | None:
        if not isinstance(fake, torch.Tensor):
            return None
        try:
            shape = tuple(index_of(size, self.names) for size in fake.shape)
            if self.is_late(shape):
                return None
            return self.input(name, shape, dtype_of(fake.dtype))
        except UnsupportedForm:
            return None

    def is_late(self, shape: Iterable[Index]) -> bool:
        """Whether an extent depends on a number that the graph reads from memory."""
        return any(not self.numbers.isdisjoint(symbols(extent)) for extent in shape)


def _check_assertion(node: fx.Node) -> None:
    """Requires that no values are checked by ``node``; compiled code would not do it."""
    if str(node.target).removeprefix("aten.") not in ASSERTIONS:
        return
    if any(isinstance(n.meta.get("val"), torch.Tensor | torch.SymBool) for n in node.args[:1]):
        unsupported("PyTorch checks values")


def _results(node: fx.Node) -> Sequence[Any]:
    fake = node.meta.get("val")
    return cast("Sequence[Any]", fake) if isinstance(fake, tuple | list) else (fake,)


def _check_results(conversion: PartialConversion, node: fx.Node) -> None:
    """Requires results on the graph's device, and of sizes that are known before it runs."""
    for one in _results(node):
        if isinstance(one, torch.SymInt):
            index_of(one, conversion.names)
        if isinstance(one, torch.SymFloat) and operator_of(node) == ITEM:
            unsupported("its result is a number that is no size")
        if isinstance(one, torch.Tensor):
            if one.device.type not in conversion.places:
                unsupported(f"its result is on {one.device}")
            if conversion.is_late([index_of(size, conversion.names) for size in one.shape]):
                unsupported("its size depends on a number that may be negative")
