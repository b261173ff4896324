"""Bias correction: subtracts the mean error that quantisation adds to a layer's results.

Nagel et al., "Data-free quantization through weight equalization and bias correction", 2019,
section 4.2, with means over calibration data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from modelcc.ir.graph import Graph, Node
from modelcc.ir.types import Array
from modelcc.ops.arithmetic import Sub
from modelcc.ops.elementwise import Add
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear
from modelcc.ops.reduce import ReduceMean
from modelcc.passes.graph.graph_writer import GraphWriter
from modelcc.quantization.plan import QuantizationPlan, QuantizedLayer
from modelcc.quantization.ranges import Rounding
from modelcc.quantization.running import Engine
from modelcc.quantization.samples import Feeds


def corrected(
    graph: Graph,
    plan: QuantizationPlan,
    roundings: Mapping[str, Rounding],
    weights: Mapping[str, Array],
    feeds: Sequence[Feeds],
    engine: Engine,
) -> Graph:
    """The float graph whose biases compensate the quantisation error of each layer, taken alone.

    ``weights`` are the dequantised weights of layers, by their nodes' results.
    """
    writer = GraphWriter(graph)
    writer.nodes += graph.nodes
    layers = [layer for layer in plan.layers if layer.weights]
    means = {
        layer.node.outputs[0]: _mean_error(writer, layer, roundings, weights) for layer in layers
    }
    run = engine.runner(writer.graph(), means.values())
    totals: dict[str, NDArray[np.float64]] = {}
    for one in engine.each("correcting biases", feeds):
        values = run(one)
        for name, mean in means.items():
            totals[name] = totals.get(name, 0.0) + values[mean].astype(np.float64)
    return _shifted(graph, layers, {name: t / len(feeds) for name, t in totals.items()})


def _mean_error(
    writer: GraphWriter,
    layer: QuantizedLayer,
    roundings: Mapping[str, Rounding],
    weights: Mapping[str, Array],
) -> str:
    """The mean error, per output channel, of a product with quantised operands."""
    node, form, graph = layer.node, layer.form, writer.source
    assert form.weights is not None
    inputs = list(node.inputs)
    for n in form.operands(len(inputs)):
        found = roundings.get(inputs[n])
        if found is not None:
            pair = np.asarray(found.scale), found.zero_point
            names = [writer.constant(part, inputs[n]) for part in pair]
            q = writer.emit(QuantizeLinear(found.dtype, 0), inputs[n], *names)
            inputs[n] = writer.emit(DequantizeLinear(0), q, *names)
    inputs[form.weights] = writer.constant(weights[node.outputs[0]], layer.weights)
    changed = writer.emit(node.op, *inputs)
    error = writer.emit(Sub(), changed, node.outputs[0])
    rank = graph.types[node.outputs[0]].rank
    axes = tuple(a for a in range(rank) if a != form.channel % rank)
    return writer.emit(ReduceMean(axes, False), error)


def _shifted(graph: Graph, layers: Sequence[QuantizedLayer], shifts: Mapping[str, Array]) -> Graph:
    """``graph`` with ``shifts`` subtracted from biases, or from constants added to products."""
    writer = GraphWriter(graph)
    readers = graph.consumers()
    changed: dict[str, Node] = {}
    for layer in layers:
        name, form = layer.node.outputs[0], layer.form
        number, node = form.bias, layer.node
        if number is None:
            adds = [n for n in readers.get(name, ()) if isinstance(n.op, Add)]
            constant = [n for n in adds for side in n.inputs if side in graph.constants]
            if len(readers.get(name, ())) != 1 or not constant:
                continue
            (node,) = constant
            number = next(n for n, side in enumerate(node.inputs) if side in graph.constants)
        given = (*node.inputs, "", "", "")[number]
        bias = graph.constants[given].data if given in graph.constants else None
        outputs = shifts[name].size
        if (given and bias is None) or (bias is not None and bias.size != outputs):
            continue
        shift = shifts[name].astype(np.float32)
        new = -shift if bias is None else bias - shift.reshape(bias.shape)
        inputs = [*node.inputs, *[""] * (number + 1 - len(node.inputs))]
        inputs[number] = writer.constant(new.astype(np.float32), given or f"{name}_bias")
        changed[node.outputs[0]] = replace(node, inputs=tuple(inputs))
    writer.nodes += [changed.get(n.outputs[0], n) if n.outputs else n for n in graph.nodes]
    return writer.graph()
