"""ReadSize: numbers in a tensor become index symbols, for shapes that depend on data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from modelcc.ir.condition import Condition, Constraints
from modelcc.ir.graph import Graph
from modelcc.ir.index import Index, Range, Sym, compare, substitute, symbols
from modelcc.ir.naming import Names
from modelcc.ir.op import Op, require
from modelcc.ir.types import I64, Array, TensorType
from modelcc.ops.samples import sample


@dataclass(frozen=True)
class ReadSize(Op):
    """x itself; its elements are from now on the values of the index symbols ``names``.

    The graph's ``dims`` bounds the symbols.  A run in which an element lies outside of its bounds
    or one of the ``constraints`` does not hold ends with an error.  There may be no names, only
    constraints.
    """

    differentiable = False
    names: tuple[str, ...]
    constraints: Constraints = ()
    pure = False
    samples = (
        sample(np.array([3, 4]), names=("a", "b")),
        sample(np.array(2), names=("a",), constraints=((Sym("a"), "<", 5),)),
    )

    @property
    def binds(self) -> tuple[str, ...]:
        return self.names

    @property
    def required(self) -> bool:
        return not self.names

    def conditions(self) -> tuple[Condition, ...]:
        """The constraints as conditions."""
        return tuple(Condition(*constraint) for constraint in self.constraints)

    def infer(self, x: TensorType) -> tuple[TensorType]:
        require(x.dtype == I64, f"sizes are i64 numbers, not {x.dtype}")
        require(
            compare(x.elements, "!=", len(self.names), {}) is not True,
            f"{len(self.names)} sizes are not the elements of {x}",
        )
        return (TensorType(x.shape, x.dtype),)

    def shape_constraints(self, *xs: TensorType | None) -> Constraints:
        return tuple((x.elements, "==", len(self.names)) for x in xs if x is not None)

    def reference(self, x: Array) -> Array:
        return x

    def bound_values(self, x: Array) -> Mapping[str, int]:
        return dict(zip(self.names, x.reshape(-1).tolist(), strict=True))

    def substitute(self, values: Mapping[str, Index]) -> Self:
        return self

    def renamed(self, names: Mapping[str, str]) -> ReadSize:
        """With its symbols under other names."""
        mentioned = (symbols(e) for a, _, b in self.constraints for e in (a, b))
        values = {n: Sym(names[n]) for n in frozenset[str]().union(*mentioned) & names.keys()}
        return replace(self.with_symbols(values), names=tuple(names.get(n, n) for n in self.names))

    def with_symbols(self, values: Mapping[str, Index]) -> ReadSize:
        """With symbols of the constraints replaced."""
        return ReadSize(
            self.names,
            tuple(
                (substitute(a, values), c, substitute(b, values)) for a, c, b in self.constraints
            ),
        )


GENERATED = re.compile(r"[a-z]\d+[a-z]*")
"""Names that axes and buffers of generated code have, like ``i0``; a model may use them, too."""


def with_fresh_sizes(graph: Graph, taken: Names) -> Graph:
    """``graph`` with the symbols that its nodes bind under names that ``taken`` had not yet.

    Bodies of its nodes keep the names of theirs.
    """
    return _renamed(graph, {name: taken.fresh(_apart(name)) for name in graph.binds})


def with_sizes_apart(graph: Graph) -> Graph:
    """``graph`` without dimensions that are called like something in generated code."""
    return _renamed(graph, {name: _apart(name) for name in graph.dims})


def _apart(name: str) -> str:
    return f"{name}." if GENERATED.fullmatch(name) else name


def _renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    if all(old == new for old, new in names.items()):
        return graph
    whole = graph.substitute({old: Sym(new) for old, new in names.items()})
    nodes = tuple(
        replace(node, op=node.op.renamed(names)) if isinstance(node.op, ReadSize) else node
        for node in whole.nodes
    )
    return whole.with_nodes(nodes)


def bound_sizes(graph: Graph) -> dict[str, Range]:
    """The symbols that nodes of ``graph`` bind, with their bounds; without those of bodies."""
    return {name: graph.dims[name] for name in graph.binds}


OPS: tuple[type[Op], ...] = (ReadSize,)
