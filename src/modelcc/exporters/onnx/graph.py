"""Export of graphs to ONNX models.

An op is written by its entry in the table, or by its decomposition.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, helper

from modelcc.exporters.extents import named_extents
from modelcc.exporters.onnx.builder import OPSETS, OnnxBuilder, OnnxValue, mentioned_names
from modelcc.exporters.onnx.entries import ENTRIES
from modelcc.exporters.onnx.sizes import OnnxSizes
from modelcc.exporters.onnx.types import tensor_proto, value_info
from modelcc.exporters.onnx.writing import OnnxWriting
from modelcc.frontends.kit.errors import UnsupportedForm, unsupported
from modelcc.ir.builder import as_array, infer_types
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.op import Builder, Op
from modelcc.ir.types import F64, Array, DType, TensorType, dtype_of

COMPUTED = 4096
"""Maximum elements of a result without operands that is exported as a constant."""


@dataclass(frozen=True)
class OnnxProgram:
    """A model with its constants kept separately."""

    proto: ModelProto
    constants: Mapping[str, Array]


def export_onnx(graph: Graph) -> ModelProto:
    """The graph as a model of ai.onnx: inputs, outputs and constants under their names.

    :class:`ModelError` lists every required node that cannot be expressed in ONNX, with reason and
    location in the user's model.  Constants are in the model, whatever their size:
    :func:`~modelcc.exporters.onnx.write_onnx` writes files of any size.
    """
    program = onnx_program(graph)
    tensors = (tensor_proto(name, data) for name, data in program.constants.items())
    program.proto.graph.initializer.extend(tensors)
    return program.proto


def onnx_program(graph: Graph) -> OnnxProgram:
    """:func:`export_onnx` without a copy of the constants."""
    if graph.interface is not None and not graph.interface.is_plain:
        message = "arguments or results that are no tensors have no form in ONNX"
        raise ModelError(message, (graph.name,))
    exporter = OnnxExporter(OnnxBuilder(graph.inputs, graph.outputs), {})
    exporter.arguments(graph)
    exporter.run(graph)
    return exporter.program(graph)


class OnnxExporter(Builder):
    """Writes nodes of a graph or of a body in one (:class:`~modelcc.ir.op.Builder`).

    ``refused``: nodes that cannot be exported, by the name of an undefined value.
    """

    def __init__(self, build: OnnxBuilder, refused: dict[str, str]) -> None:
        self.build, self.refused = build, refused
        self._values: dict[str, OnnxValue] = {}
        self._types: dict[str, TensorType] = {}
        self._number = 0

    # --- graphs

    def arguments(self, graph: Graph) -> None:
        """Adds the inputs of a model, and the sizes of its dimensions from their extents."""
        for name in graph.inputs:
            type = graph.types[name]
            self._bind(name, OnnxValue(name, type.dtype), type)
        for each in named_extents(graph):
            place = f".{each.input}.{each.axis}"
            solved = each.solved(place, self.build.symbols)
            if solved is not None:
                self.build.symbols[place] = self.build.extent(self._values[each.input], each.axis)
                self.build.symbols[solved[0]] = OnnxSizes(self.build).one(solved[1])

    def run(self, graph: Graph) -> None:
        """Exports all nodes."""
        used = {name for node in graph.nodes for name in node.inputs}.union(graph.outputs)
        for name, constant in graph.constants.items():
            if name in used:
                self._constant(name, constant.data, graph)
        outer = self.build.label
        for node in graph.nodes:
            self.build.label = next(iter(node.source), node.outputs[0])
            since = self.build.count
            for name, value in zip(node.outputs, self._node(node), strict=True):
                self.build.call(value, name, since)
                self._bind(name, value, graph.types[name])
        self.build.label = outer

    def body(self, graph: Graph, operands: Sequence[OnnxValue]) -> list[OnnxValue]:
        """The results of an op's sub-graph on ``operands``."""
        inner = OnnxExporter(self.build, self.refused)
        for name, value in zip(graph.inputs, operands, strict=True):
            inner._bind(name, value, graph.types[name])
        inner.run(graph)
        return [inner._values[name] for name in graph.outputs]

    def program(self, graph: Graph) -> OnnxProgram:
        """The model, after all nodes are exported; :class:`ModelError` if some could not be."""
        for name in graph.outputs:
            self.build.result(self._values[name], name)
        nodes = self.build.finish()
        used = mentioned_names(nodes).union(graph.outputs)
        refused = [why for name, why in self.refused.items() if name in used]
        refused += list(_untyped(graph))
        if refused:
            raise ModelError(_refusal(refused), (graph.name,))
        inputs = [value_info(n, graph.types[n]) for n in graph.inputs]
        outputs = [value_info(n, graph.types[n]) for n in graph.outputs]
        proto = helper.make_model(
            helper.make_graph(nodes, graph.name or "graph", inputs, outputs),
            opset_imports=[helper.make_opsetid("", self.build.opset)],
            ir_version=OPSETS[self.build.opset],
            producer_name="modelcc",
        )
        constants = self.build.constants.items()
        return OnnxProgram(proto, {n: data for n, data in constants if n in used})

    def _bind(self, name: str, value: OnnxValue, type: TensorType) -> None:
        self._values[name], self._types[name] = value, type

    def _constant(self, name: str, data: Array, graph: Graph) -> None:
        try:
            value = self.build.stored(name, data)
        except UnsupportedForm as error:
            value = self._without_form(f"constant {name}: {error}", graph.types[name])
        self._bind(name, value, graph.types[name])

    def _node(self, node: Node) -> tuple[OnnxValue, ...]:
        try:
            return self.written(node.op, node.inputs)
        except UnsupportedForm as error:
            where = ", ".join(node.source) or node.outputs[0]
            why = f"{where}: {type(node.op).__name__}: {error}"
        types = infer_types(node.op, [self._types[n] if n else None for n in node.inputs])
        return tuple(self._without_form(why, t) for t in types)

    def _without_form(self, why: str, type: TensorType) -> OnnxValue:
        value = OnnxValue(self.build.fresh("refused"), type.dtype)
        self.refused[value.name] = why
        return value

    # --- ops

    def written(self, op: Op, inputs: Sequence[str]) -> tuple[OnnxValue, ...]:
        """The results of ``op``."""
        values = tuple(self._values[n] if n else None for n in inputs)
        given = tuple(self._types[n] if n else None for n in inputs)
        types = infer_types(op, given)
        if _is_known(op, inputs, types):
            return (self.build.constant(np.asarray(op.reference()), types[0].dtype),)
        entry = ENTRIES.get(type(op))
        if op.has("decompose") and not _is_exact(op, types):
            entry = None
        at = OnnxWriting(self.build, self, values, given, types)
        found = None if entry is None else entry(at, op)
        if found is not None:
            return found if isinstance(found, tuple) else (found,)
        if op.has("decompose"):
            return tuple(self._values[n] for n in op.decompose(self, *inputs))
        unsupported("ONNX has no operator for it, and it is not made of simpler ops")

    # --- the interface for decompositions

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        """Exports ``op``; the names of its results."""
        types = infer_types(op, [self._types[n] if n else None for n in inputs])
        names = tuple(self._fresh() for _ in types)
        for name, value, type in zip(names, self.written(op, inputs), types, strict=True):
            self._bind(name, value, type)
        return names

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        """A constant."""
        array, name = as_array(value, dtype), self._fresh()
        own = dtype or dtype_of(array)
        self._bind(name, self.build.constant(array, own), TensorType(array.shape, own))
        return name

    def type_of(self, name: str) -> TensorType:
        """The type of a value."""
        return self._types[name]

    def _fresh(self) -> str:
        self._number += 1
        return f".{self._number}"


def _is_known(op: Op, inputs: Sequence[str], types: Sequence[TensorType]) -> bool:
    """Whether the op yields one small tensor from no operands."""
    if inputs or op.symbols() or len(types) != 1 or not op.pure:
        return False
    elements = types[0].elements
    return isinstance(elements, int) and elements <= COMPUTED


def _is_exact(op: Op, types: Sequence[TensorType]) -> bool:
    """Whether attributes, which are f32 in ONNX, are as accurate as results."""
    numbers = (v for v in op.attributes().values() if isinstance(v, float))
    return F64 not in (t.dtype for t in types) or all(np.float32(v) == v for v in numbers)


def _untyped(graph: Graph) -> Iterator[str]:
    """Inputs and outputs without a type in ONNX, and why."""
    for what, names in (("input", graph.inputs), ("output", graph.outputs)):
        for name in names:
            try:
                value_info(name, graph.types[name])
            except UnsupportedForm as error:
                yield f"{what} {name}: {error}"


def _refusal(refused: Sequence[str]) -> str:
    lines = "".join(f"\n  {line}" for line in dict.fromkeys(refused))
    count = len(dict.fromkeys(refused))
    nodes = f"{count} node{'s' if count > 1 else ''} of the model"
    return f"{nodes} cannot be written as ONNX:{lines}"
