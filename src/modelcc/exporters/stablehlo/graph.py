"""Export of a graph to StableHLO text.

An op is exported by its entry in the table, else by its decomposition, else by its tensor-level
stages: what can be compiled can be exported, and a new op needs nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from modelcc.exporters.extents import named_extents
from modelcc.exporters.stablehlo.builder import Hlo, HloBuilder
from modelcc.exporters.stablehlo.domain import Along, Domain
from modelcc.exporters.stablehlo.entries import ENTRIES
from modelcc.exporters.stablehlo.stages import empty, export_stages
from modelcc.exporters.stablehlo.text import identifier, quoted, type_text
from modelcc.frontends.kit.errors import UnsupportedForm, unsupported
from modelcc.ir.builder import infer_types
from modelcc.ir.compute import Operand, StageBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Bounds
from modelcc.ir.op import Builder, Op
from modelcc.ir.types import Array, DType, TensorType
from modelcc.ops.runtime_size import with_sizes_apart


def export_stablehlo(graph: Graph) -> str:
    """The graph as a module whose function ``main`` maps its inputs to its outputs.

    :class:`ModelError` lists every node that cannot be expressed in StableHLO, with the reason.
    """
    graph = with_sizes_apart(graph)
    hlo = HloBuilder()
    refused: list[str] = []
    exporter = GraphExporter(hlo, graph.dims, refused)
    arguments = [exporter.argument(name, graph.types[name]) for name in graph.inputs]
    exporter.bind_sizes(graph)
    exporter.run(graph)
    if refused:
        lines = "".join(f"\n  {line}" for line in refused)
        nodes = f"{len(refused)} node{'s' if len(refused) > 1 else ''} of the model"
        raise ModelError(f"{nodes} cannot be written as StableHLO:{lines}", (graph.name,))
    results = [exporter.values[name] for name in graph.outputs]
    return _module(graph, hlo, arguments, results)


def _module(graph: Graph, hlo: HloBuilder, arguments: Sequence[Hlo], results: Sequence[Hlo]) -> str:
    given = ", ".join(
        f"{value.name}: {type_text(value.type)} loc({quoted(name)})"
        for name, value in zip(graph.inputs, arguments, strict=True)
    )
    made = ", ".join(
        f"{type_text(value.type)} {{jax.result_info = {quoted(name)}}}"
        for name, value in zip(graph.outputs, results, strict=True)
    )
    dynamic = any(not graph.types[name].is_static for name in graph.inputs)
    attributes = " attributes {jax.uses_shape_polymorphism = true}" if dynamic else ""
    head = [
        f"module @{quoted(graph.name) if graph.name != identifier(graph.name) else graph.name}"
        f"{attributes} {{",
        f"  func.func public @main({given}) -> ({made}) {{",
    ]
    lines = (f"    {line.left} = {line.right}".replace("\n", "\n    ") for line in hlo.lines)
    names, types = (", ".join(t) for t in ([r.name for r in results],
                                           [type_text(r.type) for r in results]))  # fmt: skip
    return "\n".join((*head, *lines, f"    return {names} : {types}", "  }", "}", ""))


class GraphExporter(Builder):
    """Exports nodes of a graph or of a nested body (:class:`~modelcc.ir.op.Builder`)."""

    def __init__(self, hlo: HloBuilder, dims: Bounds, refused: list[str]) -> None:
        self.hlo, self.dims, self.refused = hlo, dims, refused
        self.values: dict[str, Hlo] = {}
        self._types: dict[str, TensorType] = {}
        self._number = 0

    # --- graphs

    def argument(self, name: str, type: TensorType) -> Hlo:
        """An input of the function."""
        try:
            type_text(type)
        except UnsupportedForm as error:
            self.refused.append(f"input {name}: {error}")
        self.bind(name, self.hlo.argument(name, type), type)
        return self.values[name]

    def bind(self, name: str, value: Hlo, type: TensorType) -> None:
        """Binds ``value`` to a name of the graph."""
        self.values[name], self._types[name] = value, type

    def bind_sizes(self, graph: Graph) -> None:
        """Values of named dimensions from the inputs' extents, single symbols first."""
        for each in named_extents(graph):
            solved = each.solved(".", self.hlo.symbols)
            if solved is not None:
                domain = self.domain()
                size = self.hlo.size(self.values[each.input], each.axis)
                domain.symbols["."] = Along(size, ())
                self.hlo.symbols[solved[0]] = domain.along(domain.index(solved[1])).hlo

    def run(self, graph: Graph) -> None:
        """Exports all nodes; unsupported ones are recorded, and placeholders used for their
        results."""
        last = {name: n for n, node in enumerate(graph.nodes) for name in node.inputs}
        for name, constant in graph.constants.items():
            if name in last or name in graph.outputs:
                self._constant(name, graph, constant.data)
        for node in graph.nodes:
            since = len(self.hlo.lines)
            try:
                self._node(node)
            except UnsupportedForm as error:
                self.refused.append(f"{_place(node)}: {error}")
            named: dict[Hlo, Hlo] = {}  # results may be the same value
            for name in node.outputs:
                found = self.values.get(name) or Hlo("%refused", graph.types[name])
                if found not in named:
                    named[found] = self.hlo.rename(found, name, since)
                self.bind(name, named[found], graph.types[name])

    def body(self, graph: Graph, operands: Sequence[Hlo]) -> list[Hlo]:
        """The results of an op's sub-graph on ``operands``."""
        inner = GraphExporter(self.hlo, {**self.dims, **graph.dims}, self.refused)
        for name, value in zip(graph.inputs, operands, strict=True):
            inner.bind(name, value, graph.types[name])
        inner.run(graph)
        return [inner.values[name] for name in graph.outputs]

    def _constant(self, name: str, graph: Graph, data: Array) -> None:
        since, type = len(self.hlo.lines), graph.types[name]
        try:
            value = self.hlo.constant(data, type.dtype)
            self.bind(name, self.hlo.rename(value, name, since), type)
        except UnsupportedForm as error:
            self.refused.append(f"constant {name}: {error}")
            self.bind(name, Hlo("%refused", type), type)

    def _node(self, node: Node) -> None:
        results = self.written(node.op, node.inputs)
        for name, value in zip(node.outputs, results, strict=True):
            self.values[name] = value

    # --- ops

    def written(self, op: Op, inputs: Sequence[str]) -> tuple[Hlo, ...]:
        """The results of ``op``."""
        types = self.result_types(op, inputs)
        for made in types:
            type_text(made)
        if types and all(0 in t.shape for t in types):
            return tuple(empty(self.hlo, t) for t in types)
        entry = ENTRIES.get(type(op))
        found = None if entry is None else entry(self, op, inputs, types)
        if found is not None:
            return found
        if op.has("decompose"):
            return tuple(self.values[n] for n in op.decompose(self, *inputs))
        if op.has("compute"):
            return self.computed(op.compute, inputs)
        unsupported("its algorithm has no form in StableHLO")

    def computed(
        self, compute: Callable[..., Operand | tuple[Operand, ...]], inputs: Sequence[str]
    ) -> tuple[Hlo, ...]:
        """The stages of ``compute`` applied to operands."""
        at = StageBuilder(self._fresh())
        operands = [Operand(n, self.type_of(n)) if n else None for n in inputs]
        made = compute(at, *operands)
        values = dict(self.values)
        export_stages(self.hlo, at.stages, at.types, values, self.dims)
        return tuple(values[o.name] for o in (made if isinstance(made, tuple) else (made,)))

    def result_types(self, op: Op, inputs: Sequence[str]) -> tuple[TensorType, ...]:
        """The result types by shape inference."""
        return infer_types(op, [self._types[n] if n else None for n in inputs])

    def domain(self) -> Domain:
        """A domain without axes: for index expressions of named dimensions alone."""
        return Domain(self.hlo, (), self.dims)

    # --- the interface for decompositions

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        """Exports ``op``; the names of its results."""
        types = self.result_types(op, inputs)
        names = tuple(self._fresh() for _ in types)
        for name, value, type in zip(names, self.written(op, inputs), types, strict=True):
            self.bind(name, value, type)
        return names

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        """A constant."""
        found, name = self.hlo.constant(value, dtype), self._fresh()
        self.bind(name, found, found.type)
        return name

    def type_of(self, name: str) -> TensorType:
        """The type of a value."""
        return self._types[name]

    def _fresh(self) -> str:
        self._number += 1
        return f".{self._number}"


def _place(node: Node) -> str:
    return f"{', '.join(node.source) or node.outputs[0]}: {type(node.op).__name__}"
