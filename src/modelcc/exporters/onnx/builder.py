"""Builder of ONNX nodes, with deduplicated constants and sizes."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Generator, Iterable, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, defs, helper

from modelcc.exporters.onnx.types import element_name
from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.builder import as_array
from modelcc.ir.naming import Names
from modelcc.ir.types import I64, Array, DType, dtype_of

OPSETS: Mapping[int, int] = MappingProxyType({21: 10, 23: 11, 26: 13})
"""Versions of ai.onnx that models are written in (the lowest sufficient one), with the file format
version of the same release.  Runtimes lack kernels of later ones."""

SHARED = 64
"""Maximum elements of constants that are deduplicated."""


@dataclass(frozen=True)
class OnnxValue:
    """A value by name, and its element type."""

    name: str
    dtype: DType


class OnnxBuilder:
    """Appends nodes to the innermost graph.

    ``symbols`` are values of named dimensions, ``known`` other deduplicated values; both include
    those of enclosing graphs.  Values are named after their operator until :meth:`call`.
    """

    def __init__(self, inputs: Iterable[str], results: Iterable[str]) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.symbols: MutableMapping[str, OnnxValue] = {}
        self.known: MutableMapping[object, OnnxValue] = {}
        self.label, self.opset = "", min(OPSETS)
        self._depth = 0
        self._results = frozenset(results)
        self._names: dict[str, str] = {}
        self._taken, self._labels = Names((*inputs, *results)), Names()
        self._shared: dict[object, OnnxValue] = {}
        self._made: dict[str, int] = {}

    # --- nodes

    def node(
        self, operator: str, *inputs: OnnxValue | None, dtype: DType | None = None, **settings: Any
    ) -> OnnxValue:
        """The single result of an operator, by default with the first operand's element type."""
        (value,) = self.node_of(operator, inputs, [dtype or _first(inputs)], **settings)
        return value

    def node_of(
        self,
        operator: str,
        inputs: Sequence[OnnxValue | None],
        dtypes: Sequence[DType],
        **settings: Any,
    ) -> tuple[OnnxValue, ...]:
        """The results of an operator; settings that are None are omitted.

        Not supported if the operator does not take operands of these element types.
        """
        self.opset = max(self.opset, _required_opset(operator, inputs))
        results = tuple(OnnxValue(self.fresh(operator), dtype) for dtype in dtypes)
        self._made.update({r.name: self.count + n for n, r in enumerate(results)})
        given = {k: v for k, v in settings.items() if v is not None}
        operands = [x.name if x else "" for x in inputs]
        while operands and not operands[-1]:
            operands.pop()
        outputs = [r.name for r in results]
        name = self._labels.fresh(self.label or operator)
        self.nodes.append(helper.make_node(operator, operands, outputs, name, **given))
        return results

    def fresh(self, base: str) -> str:
        """An unused name."""
        return self._taken.fresh(base)

    def extent(self, x: OnnxValue, axis: int) -> OnnxValue:
        """An extent, as a vector of one element."""
        return self.node("Shape", x, dtype=I64, start=axis, end=axis + 1)

    @property
    def count(self) -> int:
        """The number of results of nodes so far."""
        return len(self._made)

    def call(self, value: OnnxValue, name: str, since: int) -> None:
        """Names ``value`` as in the graph, if it was created since ``since`` and has no name
        yet."""
        if self._made.get(value.name, -1) >= since and value.name not in self._names:
            own = self._is_result(name) and name not in self._names.values()
            self._names[value.name] = name if own else self._taken.fresh(name)

    def _is_result(self, name: str) -> bool:
        """Whether ``name`` is that of a result of the model, not of a nested body."""
        return self._depth == 0 and name in self._results

    def result(self, value: OnnxValue, name: str) -> None:
        """Makes ``value`` the result ``name`` of the model."""
        if name not in (value.name, self._names.get(value.name)):
            self._names[self.node("Identity", value).name] = name

    @contextmanager
    def scope(self) -> Generator[list[NodeProto]]:
        """Collects the nodes added inside as a graph of their own, which may capture outer
        values."""
        outer = self.nodes, self.symbols, self.known
        self.nodes = []
        self._depth += 1
        self.symbols, self.known = ChainMap({}, self.symbols), ChainMap({}, self.known)
        try:
            yield self.nodes
        finally:
            self._depth -= 1
            self.nodes, self.symbols, self.known = outer

    # --- constants

    def constant(self, value: Array | float, dtype: DType | None = None) -> OnnxValue:
        """A constant; small ones are deduplicated."""
        array = as_array(value, dtype)
        own = dtype or dtype_of(array)
        element_name(own)
        key = (own, array.shape, array.tobytes()) if array.size <= SHARED else None
        if key is not None and key in self._shared:
            return self._shared[key]
        made = OnnxValue(self.fresh("constant"), own)
        self.constants[made.name] = array
        if key is not None:
            self._shared[key] = made
        return made

    def stored(self, name: str, data: Array) -> OnnxValue:
        """A constant of the graph under its name."""
        dtype = dtype_of(data)
        element_name(dtype)
        own = name if self._is_result(name) else self._taken.fresh(name)
        self.constants[own] = data
        return OnnxValue(own, dtype)

    def ints(self, *numbers: int) -> OnnxValue:
        """A vector of integers."""
        return self.constant(np.array(numbers, np.int64), I64)

    def number(self, value: float, dtype: DType) -> OnnxValue:
        """A scalar."""
        return self.constant(np.asarray(value, dtype.numpy), dtype)

    # --- names, at the end

    def finish(self) -> list[NodeProto]:
        """The nodes that the results depend on, with the final names of values."""
        for node in self.nodes:
            self._rename(node)
        kept, _ = _needed(self.nodes, set(self._results))
        return kept

    def _rename(self, node: NodeProto) -> None:
        node.input[:] = [self._names.get(n, n) for n in node.input]
        node.output[:] = [self._names.get(n, n) for n in node.output]
        for graph in _bodies(node):
            for value in (*graph.input, *graph.output):
                value.name = self._names.get(value.name, value.name)
            for inner in graph.node:
                self._rename(inner)


def _first(inputs: Sequence[OnnxValue | None]) -> DType:
    first = inputs[0]
    assert first is not None
    return first.dtype


@cache
def _allowed(operator: str, opset: int) -> tuple[frozenset[str], ...]:
    """Types allowed for operands, the last ones for all remaining operands; empty if there is no
    such operator."""
    try:
        return tuple(frozenset(i.types) for i in defs.get_schema(operator, opset, "").inputs)
    except defs.SchemaError:
        return ()


def has_operator(operator: str, *inputs: OnnxValue | None) -> bool:
    """Whether ONNX has the operator for such operands."""
    return _opset_of(operator, inputs) is not None


def _opset_of(operator: str, inputs: Sequence[OnnxValue | None]) -> int | None:
    """The first version that has the operator for such operands."""
    given = [x and f"tensor({element_name(x.dtype)})" for x in inputs]
    for opset in OPSETS:
        allowed = _allowed(operator, opset)
        kinds = (allowed[min(n, len(allowed) - 1)] for n in range(len(given)) if allowed)
        pairs = zip(given, kinds, strict=False)
        if allowed and all(x is None or x in types for x, types in pairs):
            return opset
    return None


def _required_opset(operator: str, inputs: Sequence[OnnxValue | None]) -> int:
    found = _opset_of(operator, inputs)
    if found is not None:
        return found
    types = ", ".join(dict.fromkeys(str(x.dtype) for x in inputs if x))
    return unsupported(f"ONNX has no {operator} of {types}")


def _bodies(node: NodeProto) -> list[GraphProto]:
    return [a.g for a in node.attribute if a.type == AttributeProto.GRAPH]


def _needed(nodes: Iterable[NodeProto], wanted: set[str]) -> tuple[list[NodeProto], set[str]]:
    """The nodes that ``wanted`` results depend on, and all names they use."""
    kept: list[NodeProto] = []
    for node in reversed(list(nodes)):
        if wanted.isdisjoint(node.output):
            continue
        wanted.update(node.input)
        for graph in _bodies(node):
            inner, mentioned = _needed(graph.node, {v.name for v in graph.output})
            del graph.node[:]
            graph.node.extend(inner)
            wanted |= mentioned
        kept.append(node)
    return kept[::-1], wanted


def mentioned_names(nodes: Iterable[NodeProto]) -> set[str]:
    """Names that nodes read, including those in their bodies."""
    found: set[str] = set()
    for node in nodes:
        found.update(node.input)
        for graph in _bodies(node):
            found |= mentioned_names(graph.node) | {v.name for v in graph.output}
    return found
