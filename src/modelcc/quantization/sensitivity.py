"""Sensitivity of layers: the error of the outputs when one alone is quantised.

One graph, compiled once, has a switch per tensor that may be quantised and weights as inputs, so
that any selection of layers is a run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from modelcc.ir.graph import Graph
from modelcc.ir.types import BOOL, Array, TensorType
from modelcc.ops.comparison import Where
from modelcc.ops.quant import DequantizeLinear, QuantizeLinear
from modelcc.passes.graph.graph_writer import GraphWriter
from modelcc.quantization.plan import QuantizationPlan
from modelcc.quantization.ranges import Rounding
from modelcc.quantization.running import Engine, Noise, compared
from modelcc.quantization.samples import Feeds

SAMPLES = 16
"""Runs that errors are measured on."""


@dataclass(frozen=True)
class Switches:
    """Tensors that are quantised, and layers (by their nodes' results) whose weights are."""

    rounded: Collection[str]
    weights: Collection[str]


class Simulation:
    """A graph whose quantisation is selected run by run."""

    def __init__(
        self,
        graph: Graph,
        plan: QuantizationPlan,
        roundings: Mapping[str, Rounding],
        weights: Mapping[str, Array],
        feeds: Sequence[Feeds],
        engine: Engine,
    ) -> None:
        """``weights`` are the dequantised weights of layers, by their nodes' results.

        Errors are measured on the first :data:`SAMPLES` of the ``feeds``.
        """
        self.graph, self.engine = graph, engine
        self.feeds = feeds[:SAMPLES]
        self.layers = {layer.node.outputs[0]: layer for layer in plan.layers if layer.weights}
        whole = {n: graph.constants[layer.weights].data for n, layer in self.layers.items()}
        self.weights = {name: (whole[name], weights[name]) for name in self.layers}
        self.switches: dict[str, str] = {}
        self.places: dict[str, str] = {}
        self._run = engine.runner(self._switched(roundings))
        nothing = Switches((), ())
        self.expected = [self._outputs(one, nothing) for one in self.feeds]

    def error(self, choice: Switches) -> float:
        """The error of the worst output."""
        noise = {name: Noise() for name in self.graph.outputs}
        for one, expected in zip(self.feeds, self.expected, strict=True):
            compared(self._outputs(one, choice), expected, noise)
        return max(each.error for each in noise.values())

    def _outputs(self, feeds: Feeds, choice: Switches) -> dict[str, Array]:
        switched = {s: np.asarray(n in choice.rounded) for n, s in self.switches.items()}
        weights = {
            place: self.weights[name][name in choice.weights] for name, place in self.places.items()
        }
        found = self._run({**feeds, **switched, **weights})
        return {name: found[name] for name in self.graph.outputs}

    def _switched(self, roundings: Mapping[str, Rounding]) -> Graph:
        """The graph with its switches and weights as additional inputs."""
        writer = GraphWriter(self.graph)
        renamed = {
            name: self._switch(writer, name, roundings[name])
            for name in self.graph.inputs
            if name in roundings
        }
        heads = {n: layer.form.weights for n, layer in self.layers.items()}
        for node in self.graph.nodes:
            inputs = [renamed.get(name, name) for name in node.inputs]
            name = node.outputs[0] if node.outputs else ""
            if name in heads:
                number = heads[name]
                assert number is not None
                inputs[number] = self._input(writer, self.graph.types[inputs[number]], "weights")
                self.places[name] = inputs[number]
            writer.append(replace(node, inputs=tuple(inputs)))
            for result in node.outputs:
                if result in roundings:
                    renamed[result] = self._switch(writer, result, roundings[result])
        graph = writer.graph()
        extra = (*self.switches.values(), *self.places.values())
        types = {**graph.types, **{name: writer.types[name] for name in extra}}
        return replace(
            graph, inputs=(*graph.inputs, *extra), types=MappingProxyType(types), interface=None
        )

    def _switch(self, writer: GraphWriter, name: str, found: Rounding) -> str:
        """``name``, quantised if its switch is on."""
        pair = [writer.constant(p, name) for p in (np.asarray(found.scale), found.zero_point)]
        q = writer.emit(QuantizeLinear(found.dtype, 0), name, *pair)
        rounded = writer.emit(DequantizeLinear(0), q, *pair)
        self.switches[name] = self._input(writer, TensorType((), BOOL), "switch")
        return writer.emit(Where(), self.switches[name], rounded, name)

    def _input(self, writer: GraphWriter, type: TensorType, base: str) -> str:
        name = writer.names.fresh(base)
        writer.types[name] = type
        return name


def layer_errors(simulation: Simulation, plan: QuantizationPlan) -> dict[str, float]:
    """The error of the outputs with each layer alone quantised, by its node's result."""
    errors: dict[str, float] = {}
    report, count = simulation.engine.config.report, len(plan.layers)
    for n, layer in enumerate(plan.layers):
        report("quantising one layer at a time", n, count)
        name = layer.node.outputs[0]
        errors[name] = simulation.error(Switches(layer.operands, (name,)))
    report("quantising one layer at a time", count, count)
    return errors
