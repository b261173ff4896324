"""Insertion of QuantizeLinear and DequantizeLinear around integer computation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.quantized_form import QuantizedForm
from modelcc.ir.types import Array, DType
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear
from modelcc.passes.graph.graph_writer import GraphWriter
from modelcc.quantization.plan import QuantizationPlan
from modelcc.quantization.ranges import Rounding, rounding
from modelcc.quantization.weights import LARGEST_BIAS, IntegerWeights, integer_bias, sliced_weights


@dataclass(frozen=True)
class Numbers:
    """Roundings of tensors, by name, and the integer weights."""

    roundings: Mapping[str, Rounding]
    weights: DType
    per_channel: bool = True


def quantised_graph(graph: Graph, plan: QuantizationPlan, numbers: Numbers) -> Graph:
    """The graph as planned; inputs and outputs keep their names and types.

    A value that is quantised where it is computed keeps its name after dequantisation.
    """
    writer = GraphWriter(graph)
    inserting = _Insertion(writer, plan, numbers)
    for node in graph.nodes:
        inserting.write(node)
    return writer.graph()


def layer_weights(
    node: Node, form: QuantizedForm, graph: Graph, numbers: Numbers
) -> IntegerWeights:
    """The integer weights of a node; scales are large enough for its bias to fit in 32 bits."""
    assert form.weights is not None
    data = graph.constants[node.inputs[form.weights]].data
    axis = form.axis % data.ndim if numbers.per_channel and data.ndim > 1 else None
    found = numbers.roundings.get(node.inputs[form.operands(1)[0]])
    bias = bias_of(node, form, graph)
    if found is None or bias is None:
        return sliced_weights(data, axis, numbers.weights)
    least = np.abs(bias) / (found.scale * LARGEST_BIAS)
    return sliced_weights(data, axis, numbers.weights, least if axis is not None else least.max())


def bias_of(node: Node, form: QuantizedForm, graph: Graph) -> Array | None:
    """The constant bias of a node, if it has one element per slice of its weights."""
    if form.bias is None or form.weights is None or form.bias >= len(node.inputs):
        return None
    constant = graph.constants.get(node.inputs[form.bias])
    outputs = graph.types[node.outputs[0]].shape[form.channel]
    if constant is None or constant.data.size != outputs:
        return None
    return constant.data.reshape(-1)


class _Insertion:
    def __init__(self, writer: GraphWriter, plan: QuantizationPlan, numbers: Numbers) -> None:
        self.writer, self.plan, self.numbers = writer, plan, numbers
        self.source = writer.source
        self.heads = {layer.node.outputs[0] for layer in plan.layers}
        self.floats: dict[str, str] = {}
        self.kept: dict[tuple[str, bytes], str] = {}

    def write(self, node: Node) -> None:
        """Emits a node, with operands and results quantised as planned."""
        name = node.outputs[0] if node.outputs else ""
        if name not in self.plan.integer:
            self.writer.append(node)
            return
        form = node.op.quantize()
        assert form is not None
        if form.moves or name in self.heads:
            node = replace(node, inputs=self._operands(node, form))
        if name not in self.plan.rounded:
            self.writer.append(node)
            return
        raw = self.writer.emit(node.op, *node.inputs, source=node.source)
        self._rounded(raw, self.numbers.roundings[name], node.source, name)

    def _operands(self, node: Node, form: QuantizedForm) -> tuple[str, ...]:
        inputs = list(node.inputs)
        activations = [*form.operands(len(inputs))]
        if form.weights is not None and node.inputs[form.weights] in self.source.constants:
            weights = layer_weights(node, form, self.source, self.numbers)
            inputs[form.weights] = self._integers(node.inputs[form.weights], weights)
            self._bias(node, form, weights, inputs)
        elif form.weights is not None:
            activations.append(form.weights)
        for n in activations:
            inputs[n] = self._activation(node, form, inputs[n])
        return tuple(inputs)

    def _bias(
        self, node: Node, form: QuantizedForm, weights: IntegerWeights, inputs: list[str]
    ) -> None:
        """The bias in units of the accumulator, if it is a constant with one element per output."""
        bias = bias_of(node, form, self.source)
        found = self.numbers.roundings.get(node.inputs[form.operands(1)[0]])
        if form.bias is not None and bias is not None and found is not None:
            steps = integer_bias(bias, found.scale * weights.scale)
            inputs[form.bias] = self._integers(node.inputs[form.bias], steps)

    def _activation(self, node: Node, form: QuantizedForm, name: str) -> str:
        """A quantised activation operand."""
        constant = self.source.constants.get(name)
        if constant is not None:
            return self._constant(node, form, name, constant.data)
        producer_rounds = name in self.plan.integer
        if producer_rounds or name not in self.plan.rounded:
            return name
        if name not in self.floats:
            found = self.numbers.roundings[name]
            self.floats[name] = self._rounded(name, found, node.source, "")
        return self.floats[name]

    def _constant(self, node: Node, form: QuantizedForm, name: str, data: Array) -> str:
        """A constant among activations: with the shared scale if the op moves elements, else its
        own."""
        result, others = node.outputs[0], [self.numbers.roundings.get(n) for n in node.inputs]
        if form.moves:
            found = self.numbers.roundings[result]
        else:
            dtype = next(r.dtype for r in others if r is not None)
            found = rounding(min(0.0, float(data.min())), max(0.0, float(data.max())), dtype, False)
        q = QuantizeLinear(found.dtype, 0).reference(
            data, np.asarray(found.scale), found.zero_point
        )
        parts = (q, np.asarray(found.scale), found.zero_point)
        names = [self.writer.constant(part, name) for part in parts]
        return self.writer.emit(DequantizeLinear(0), *names, source=node.source)

    def _integers(self, name: str, weights: IntegerWeights) -> str:
        """A constant as integers, deduplicated by name and scale."""
        key = name, weights.scale.tobytes()
        if key not in self.kept:
            data = self.writer.constant(weights.data, f"{name}_quantized")
            scale = self.writer.constant(weights.scale, f"{name}_scale")
            self.kept[key] = self.writer.emit(weights.op, data, scale)
        return self.kept[key]

    def _rounded(self, raw: str, found: Rounding, source: tuple[str, ...], name: str) -> str:
        scale = self.writer.constant(np.asarray(found.scale), f"{raw}_scale")
        zero = self.writer.constant(found.zero_point, f"{raw}_zero")
        q = self.writer.emit(QuantizeLinear(found.dtype, 0), raw, scale, zero, source=source)
        return self.writer.emit(DequantizeLinear(0), q, scale, zero, source=source, name=name)
