"""Converts products of f32 to 16-bit floats, where the user allows it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import ml_dtypes
import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.naming import Names
from modelcc.ir.types import BF16, F16, F32, DType
from modelcc.ops.arithmetic import Cast
from modelcc.passes.graph.dead_code import with_nodes


@dataclass(frozen=True)
class LowerPrecision:
    """Operands of products become ``dtype``, their sums stay f32; values between such products
    are computed in f32 and stored in ``dtype`` (:class:`~modelcc.ir.narrowing.Narrowing`).

    Values whose only reader computes in f32 are not rounded.  Inputs and outputs keep their types,
    and so do products with constants beyond the range of ``dtype``.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>, %w: tensor<3x3xf32>):
          %p = "mcc.MatMul"(%x, %w)
          %r = "mcc.Relu"(%p)
          %y = "mcc.MatMul"(%r, %w)
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<2x3xf32>, %w: tensor<3x3xf32>):
          %a = "mcc.Cast"(%x) {to = bf16}
          %b = "mcc.Cast"(%w) {to = bf16}
          %p = "mcc.MatMul"(%a, %b)
          %q = "mcc.Cast"(%p) {to = f32}
          %r = "mcc.Relu"(%q)
          %s = "mcc.Cast"(%r) {to = bf16}
          %z = "mcc.MatMul"(%s, %b)
          %y = "mcc.Cast"(%z) {to = f32}
          "mcc.return"(%y)
        })
    """

    dtype: DType = BF16
    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        if not any(node.op.narrowing.kind == "products" for node in graph.nodes):
            return graph
        lowering = _Lowering(graph, self.dtype, self.limit)
        for node in graph.nodes:
            lowering.take(node)
        return lowering.graph() if lowering.lowered else graph


def lowerings(precision: str) -> tuple[LowerPrecision, ...]:
    """The pass that ``precision`` requests, if any."""
    return tuple(LowerPrecision(dtype) for dtype in (BF16, F16) if dtype.name == precision)


def _wanted(graph: Graph, readers: Mapping[str, Sequence[Node]]) -> frozenset[str]:
    """Values that only products read, possibly through data movement: their producers round
    them."""
    found: set[str] = set()
    for node in reversed(graph.nodes):
        for name in node.outputs:
            read = readers.get(name, ()) if name not in graph.outputs else ()
            if read and all(_wants(graph, reader, name, found) for reader in read):
                found.add(name)
    return frozenset(found)


def _wants(graph: Graph, reader: Node, name: str, found: Collection[str]) -> bool:
    form = reader.op.narrowing
    if form.kind == "products":
        return all(n != name or number not in form.kept for number, n in enumerate(reader.inputs))
    moved = form.kind == "follows" and reader.outputs[0] in found
    return moved and graph.types[name].elements == graph.types[reader.outputs[0]].elements


class _Lowering:
    """``narrow`` maps f32 values to their narrow versions, and ``wide`` has f32 versions of those.
    ``rounded`` ones are computed from narrow values only, ``stored`` those of them that all readers
    take in the narrow type."""

    def __init__(self, graph: Graph, dtype: DType, limit: int | None) -> None:
        self._graph, self._dtype, self._limit = graph, dtype, limit
        self._readers = graph.consumers()
        self._names = Names(graph.types)
        self._types = dict(graph.types)
        self._nodes: list[Node] = []
        self._narrow: dict[str, str] = {}
        self._wide: dict[str, str] = {}
        self._rounded: set[str] = set()
        self._stored: set[str] = set()
        self._wanted = _wanted(graph, self._readers)
        self._open: set[str] = set()
        """Names of values that exist in the narrow type only."""
        self.lowered = 0

    def graph(self) -> Graph:
        """The graph of the nodes so far."""
        whole = replace(self._graph, types=MappingProxyType(self._types))
        return with_nodes(whole, tuple(self._nodes))

    def take(self, node: Node) -> None:
        """Adds a node, in the narrowest allowed form."""
        kind = node.op.narrowing.kind if self._gives_float(node) else "wide"
        floats = [name for name in node.inputs if self._is_float(name)]
        varying = [name for name in floats if name not in self._graph.constants]
        follows = bool(varying) and self._rounded.issuperset(varying)
        if kind == "products" and self._multiplies(node):
            self.lowered += 1
            self._emit_narrow(node)
        elif kind == "follows" and (follows or node.outputs[0] in self._wanted):
            self._emit_narrow(node)
        else:
            inputs = tuple(self._as_wide(name, node) for name in node.inputs)
            self._nodes.append(node if inputs == node.inputs else replace(node, inputs=inputs))
            if kind == "elements" and follows:
                self._round(node)

    def _gives_float(self, node: Node) -> bool:
        products = node.op.narrowing.kind == "products"
        return (products or len(node.outputs) == 1) and all(map(self._is_float, node.outputs))

    def _is_float(self, name: str) -> bool:
        return bool(name) and self._graph.types[name].dtype == F32

    def _multiplies(self, node: Node) -> bool:
        """Whether a product may be lowered: of f32, with constants in the range of the type."""
        kept = node.op.narrowing.kept
        given = [n for number, n in enumerate(node.inputs) if n and number not in kept]
        given = [n for n in given if self._graph.types[n].dtype.is_float]
        if not all(map(self._is_float, given)) or self.lowered == self._limit:
            return False
        most = float(np.asarray(ml_dtypes.finfo(self._dtype.numpy).max, np.float32))
        known = (self._graph.constants[n].data for n in given if n in self._graph.constants)
        return all(bool(np.all(np.abs(data) <= most)) for data in known)

    def _emit_narrow(self, node: Node) -> None:
        """Emits the op on narrow operands, except those that it keeps, with narrow results, except
        those in its accumulation type."""
        inputs = tuple(
            self._as_wide(name, node)
            if number in node.op.narrowing.kept
            else self._as_narrow(name, node)
            for number, name in enumerate(node.inputs)
        )
        types = node.op.infer(*(self._types[name] if name else None for name in inputs))
        pairs = zip(node.outputs, types, strict=True)
        narrow = [name for name, type in pairs if type.dtype == self._dtype]
        for output in narrow:
            self._narrow[output] = self._fresh(output, self._dtype)
        results = tuple(self._narrow[n] if n in narrow else n for n in node.outputs)
        self._nodes.append(replace(node, inputs=inputs, outputs=results))
        self._rounded.update(narrow)
        self._stored.update(narrow)
        self._open.update(narrow)
        for output in narrow:
            if output in self._graph.outputs:
                self._as_wide(output, node)

    def _round(self, node: Node) -> None:
        """Stores a value rounded if it has several readers, or one that does not compute in f32."""
        (output,) = node.outputs
        readers = self._readers.get(output, ())
        self._rounded.add(output)
        computing = all(r.op.narrowing.kind in ("wide", "elements") for r in readers)
        if len(readers) > 1 or not computing:
            self._as_narrow(output, node)
            self._stored.add(output)

    def _as_narrow(self, name: str, node: Node) -> str:
        """``name`` rounded, if it is f32."""
        if not self._is_float(name):
            return name
        if name not in self._narrow:
            self._narrow[name] = self._cast(name, self._fresh(name, self._dtype), node)
        return self._narrow[name]

    def _as_wide(self, name: str, node: Node) -> str:
        """``name`` in f32, if it was."""
        if name not in self._stored:
            return name
        if name not in self._wide:
            result = name if name in self._open else self._fresh(name, F32)
            self._wide[name] = self._cast(self._narrow[name], result, node)
        return self._wide[name]

    def _cast(self, name: str, result: str, node: Node) -> str:
        self._nodes.append(Node(Cast(self._types[result].dtype), (name,), (result,), node.source))
        return result

    def _fresh(self, name: str, dtype: DType) -> str:
        fresh = self._names.fresh(f"{name}_{dtype}")
        self._types[fresh] = replace(self._types[name], dtype=dtype)
        return fresh
