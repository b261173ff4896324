"""Functions of tensors as the bodies of branches and loops.

A body is closed: captured values of the surrounding function become operands and inputs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from sys import getrefcount
from typing import Any

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.op import Op
from modelcc.ir.types import TensorType
from modelcc.ops.arithmetic import Identity
from modelcc.ops.control import Control, Loop
from modelcc.tensor.graphs import continued, pending
from modelcc.tensor.lazy import TRACED, Lazy, Literal, Placeholder, Projection, callers_line
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import Form, flatten, like, paths

OWN = 3
"""References to a node in a list, held by the loop over it and as an argument."""


@dataclass(frozen=True)
class Outcome:
    """What a function returned: its tensors, and its tree with numbers in place of these."""

    results: list[Tensor]
    tree: Any
    form: Form

    def types(self) -> list[TensorType]:
        """Types of the tensors."""
        return [tensor.type for tensor in self.results]

    def rebuilt(self, tensors: Sequence[Any]) -> Any:
        """The tree with ``tensors`` in it."""
        return like(self.tree, iter(tensors))

    def __str__(self) -> str:
        places = [place for place, _ in paths(self.tree, "output")]
        return ", ".join(f"{p}: {t.type}" for p, t in zip(places, self.results, strict=True))


def outcome(tree: Any) -> Outcome:
    """``tree`` flattened; numbers and arrays in it become tensors."""
    leaves, form = flatten(tree)
    numbers = like(tree, iter([0] * len(leaves)))
    return Outcome([tensor_of(leaf) for leaf in leaves], numbers, form)


def tensor_of(leaf: Any) -> Tensor:
    """``leaf`` as a tensor."""
    return leaf if isinstance(leaf, Tensor) else Tensor(leaf)


def is_traced(tree: Any) -> bool:
    """Whether a tensor in ``tree`` has no contents: it depends on inputs of a traced function."""
    return any(
        isinstance(leaf, Tensor) and leaf.phase == TRACED and leaf.held is None
        for leaf in flatten(tree)[0]
    )


def placeholders(stem: str, types: Sequence[TensorType]) -> list[Tensor]:
    """Values without contents, as arguments of a body."""
    return [Tensor.placeholder(f"{stem}{i}", type) for i, type in enumerate(types)]


@dataclass(frozen=True)
class TracedBody:
    """Results computed from placeholders, and their nodes, operands first.

    ``captured`` are values from the outside.
    """

    results: Sequence[Tensor]
    order: Sequence[Lazy]
    captured: list[Lazy]

    def graph(self, build: GraphBuilder, own: dict[int, str], captured: Sequence[Lazy]) -> Graph:
        """The body, where ``own`` are names of its placeholders; it takes ``captured`` last."""
        found = dict(own)
        for number, node in enumerate(captured):
            bounds = dict(node.op.bounds) if isinstance(node.op, Placeholder) else {}
            found[id(node)] = build.input(f"captured{number}", node.type, bounds)
        continued(self.order, found, build)
        return build.build([build.emit(Identity(), found[id(r)]) for r in self.results])


def body_of(results: Sequence[Tensor], own: Sequence[Tensor], moved_out: bool) -> TracedBody:
    """The nodes from ``own`` to ``results``.

    Values that do not depend on ``own`` are captured; unless ``moved_out``, only if they are held
    outside of the body: computations of a branch are not wanted if it is not taken.
    """
    order = pending(results)
    mine = {id(node) for node in own}
    dependent = _dependent(order, mine)
    inside = dependent if moved_out else _made_within(order, results, dependent)
    inner = [node for node in order if id(node) in inside or isinstance(node.op, Literal)]
    seen = {id(node) for node in inner} | mine
    read = [x for node in inner if node.held is None for x in node.operands if x is not None]
    outer = {id(x): x for x in (*read, *results) if id(x) not in seen}
    return TracedBody(results, inner, list(outer.values()))


def _dependent(order: Sequence[Lazy], own: set[int]) -> set[int]:
    """Identities of ``own`` and of values that depend on them."""
    found = set(own)
    for node in order:
        if node.held is None and any(id(x) in found for x in node.operands):
            found.add(id(node))
    return found


def _made_within(order: Sequence[Lazy], results: Sequence[Lazy], dependent: set[int]) -> set[int]:
    """Nodes that are held only by each other and ``results``.

    Reference counts affect where something is computed, never the result.
    """
    uses = Counter(map(id, results))
    inside = set(dependent)
    for node in reversed(order):
        alone = getrefcount(node) <= uses[id(node)] + OWN
        if id(node) in dependent or (node.held is None and node.op is not None and alone):
            inside.add(id(node))
            uses.update(map(id, node.operands))
    for node in order:  # a node of several results has no value that could be captured
        apart = isinstance(node.op, Projection) and id(node.operands[0]) not in inside
        if apart or isinstance(node.op, Placeholder):
            inside.discard(id(node))
    return inside | dependent


def counter_for(body: TracedBody) -> str:
    """A name for the counter of a loop over ``body`` that no loop inside has."""
    taken = {name for node in body.order if isinstance(node.op, Op) for name in _counters(node.op)}
    return next(name for name in map("step{}".format, count(1)) if name not in taken)


def _counters(op: Op) -> Iterator[str]:
    if isinstance(op, Loop):
        yield op.counter
    for graph in op.graphs().values() if isinstance(op, Control) else ():
        for node in graph.nodes:
            yield from _counters(node.op)


@lru_cache(1024)
def unique_op(op: Op) -> Op:
    """The unique object for equal ops with bodies, the key of compiled programs."""
    return op


def same_types(what: str, first: Outcome, second: Outcome, names: tuple[str, str]) -> None:
    """:class:`ModelError` naming both unless two outcomes are trees of one form and types."""
    if first.form == second.form and first.types() == second.types():
        return
    raise ModelError(
        f"{what}: {names[0]} is ({first}), and {names[1]} is ({second})",
        callers_line(),
        "make both the same tree of the same shapes and types, with astype where they differ",
    )
