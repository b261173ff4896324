"""Weight-only quantisation: low-bit weights, all else unchanged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.types import I8, DType
from modelcc.ops.arithmetic import Add
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.passes.graph.graph_writer import GraphWriter
from modelcc.quantization.plan import QuantizationPlan, QuantizedLayer
from modelcc.quantization.weights import IntegerWeights, blocked_weights, sliced_weights


def with_integer_weights(graph: Graph, plan: QuantizationPlan, dtype: DType, block: int) -> Graph:
    """The graph with planned weights quantised, and dequantised where they are read.

    Matrices have a scale per ``block`` of the reduction (0: per output), kernels of convolutions 8
    bits and a scale per output.
    """
    writer = GraphWriter(graph)
    layers = {layer.node.outputs[0]: layer for layer in plan.layers if layer.weights}
    made: dict[tuple[str, bool], str] = {}
    for node in graph.nodes:
        layer = layers.get(node.outputs[0]) if node.outputs else None
        if layer is None:
            writer.append(node)
            continue
        key = layer.weights, _is_turned(node)
        if key not in made:
            weights = layer_weights_only(layer, graph, dtype, block)
            data = writer.constant(weights.data, f"{layer.weights}_quantized")
            scale = writer.constant(weights.scale, f"{layer.weights}_scale")
            made[key] = writer.emit(weights.op, data, scale)
        _write_product(writer, node, layer, made[key])
    return writer.graph()


def layer_weights_only(
    layer: QuantizedLayer, graph: Graph, dtype: DType, block: int
) -> IntegerWeights:
    """The integer weights of a layer; a matrix is ``[inputs, outputs]``."""
    data, form = graph.constants[layer.weights].data, layer.form
    if not isinstance(layer.node.op, MatMul | Gemm) or data.ndim < 2:
        return sliced_weights(data, form.axis % data.ndim if data.ndim > 1 else None, I8)
    data = np.ascontiguousarray(data.T) if _is_turned(layer.node) else data
    if not block:
        return sliced_weights(data, data.ndim - 1, dtype)
    return blocked_weights(data, data.ndim - 2, block, dtype)


def _is_turned(node: Node) -> bool:
    return isinstance(node.op, Gemm) and node.op.trans_b


def _write_product(writer: GraphWriter, node: Node, layer: QuantizedLayer, weights: str) -> None:
    """The node with integer weights; a Gemm becomes the product whose kernels read packed
    weights."""
    op, (x, _, *rest) = node.op, node.inputs
    if not isinstance(op, Gemm):
        inputs = list(node.inputs)
        assert layer.form.weights is not None
        inputs[layer.form.weights] = weights
        writer.append(replace(node, inputs=tuple(inputs)))
    elif op.trans_a or op.alpha != 1.0 or op.beta != 1.0:
        writer.append(replace(node, op=replace(op, trans_b=False), inputs=(x, weights, *rest)))
    elif rest and rest[0]:
        product = writer.emit(MatMul(), x, weights, source=node.source)
        writer.emit(Add(), product, rest[0], source=node.source, name=node.outputs[0])
    else:
        writer.append(replace(node, op=MatMul(), inputs=(x, weights)))
