"""Finds the operation that produced the first NaN or infinity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from modelcc.ir.errors import Error
from modelcc.ir.graph import Graph, Node
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array, dtype_of


class NonFiniteError(Error):
    """A loss, or an updated parameter, is NaN or infinite."""


FINE, INFINITE, UNDEFINED = range(3)
"""The worst kind of element in an array: finite, infinite, NaN."""

UPDATE = ("the update of parameters",)
"""Source of an optimiser's nodes that have no line in the user's program."""


@dataclass(frozen=True)
class Spread:
    """The minimum and maximum finite element, and the worst kind of element."""

    worst: int
    low: float
    high: float

    def __str__(self) -> str:
        spoiled = ("", ", infinite", ", NaN")[self.worst]
        return f"{self.low:.4g} to {self.high:.4g}{spoiled}"


def require_finite(graph: Graph, feeds: Mapping[str, Array], *results: Mapping[str, Array]) -> None:
    """:class:`NonFiniteError` if one of ``results`` is not finite, with the operation of ``graph``
    that caused that for ``feeds``."""
    bad = next((n for found in results for n, a in found.items() if not _finite(a)), None)
    if bad is None:
        return
    given = [name for name, array in feeds.items() if name in graph.inputs and not _finite(array)]
    if given:
        raise NonFiniteError(f"{bad} is not finite: {given[0]} was not before the step")
    output = bad if bad in graph.outputs else f"next.{bad}"
    raise NonFiniteError(f"{bad} is not finite: {first_non_finite(graph, feeds, output)}")


def first_non_finite(graph: Graph, feeds: Mapping[str, Array], output: str) -> str:
    """The source of non-finite elements that propagate to ``output``."""
    ranges = {name: range_of(constant.data) for name, constant in graph.constants.items()}
    known = {name: np.asarray(feeds[name]) for name in graph.inputs}
    ranges |= {name: range_of(array) for name, array in known.items()}

    def note(node: Node, results: tuple[Array, ...]) -> None:
        ranges.update(zip(node.outputs, map(range_of, results), strict=True))

    interpret(graph, known, note)
    if ranges[output].worst == FINE:
        return ("the reference interpreter gets finite numbers from the same inputs; "
                "modelcc.verify tells whether compiled code agrees with it")  # fmt: skip
    return _told(graph, _culprit(graph, ranges, output), ranges)


def range_of(array: Array) -> Spread:
    """The range of an array; non-float elements are all finite."""
    if not array.size or not dtype_of(array).is_float:
        return Spread(FINE, 0.0, 0.0)
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    worst = UNDEFINED if np.isnan(wide).any() else INFINITE if finite.size < wide.size else FINE
    return Spread(worst, *((finite.min(), finite.max()) if finite.size else (np.nan, np.nan)))


def _culprit(graph: Graph, ranges: Mapping[str, Spread], name: str) -> Node:
    """The origin of the first non-finite value on which ``name`` depends: NaN before infinity,
    which masks contain on purpose."""
    producers = graph.producers()
    node = producers[name]
    while True:
        spoiled = [n for n in node.inputs if n in producers and ranges[n].worst != FINE]
        if not spoiled:
            return node
        node = producers[max(spoiled, key=lambda n: ranges[n].worst)]


def _told(graph: Graph, node: Node, ranges: Mapping[str, Spread]) -> str:
    operands = "; ".join(f"operand {n} is {ranges[x]}" for n, x in enumerate(node.inputs) if x)
    made = "NaN" if ranges[node.outputs[0]].worst == UNDEFINED else "infinity"
    text = f"{type(node.op).__name__} made the first {made}"
    text += f"\n  operands: {operands}" if operands else ""
    if node.source == UPDATE:
        return f"{text}\n  in {UPDATE[0]}"
    text += "" if node in _ancestors(graph, "loss") else "\n  in the backward pass"
    return text + "".join(f"\n  at {place}" for place in node.source)


def _ancestors(graph: Graph, name: str) -> list[Node]:
    needed = {name}
    found: list[Node] = []
    for node in reversed(graph.nodes):
        if not needed.isdisjoint(node.outputs):
            needed |= set(node.inputs)
            found.append(node)
    return found


def _finite(array: Array) -> bool:
    return not dtype_of(array).is_float or bool(np.isfinite(array.astype(np.float64)).all())
