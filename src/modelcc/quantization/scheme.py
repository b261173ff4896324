"""A model's graph and calibration, quantised for any selection of layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from modelcc.ir.graph import Graph
from modelcc.ir.types import I16, Array, DType, dtype_of
from modelcc.quantization.calibration import roundings
from modelcc.quantization.histogram import Histogram
from modelcc.quantization.insertion import Numbers, layer_weights, quantised_graph
from modelcc.quantization.plan import QuantizationPlan, quantization_plan
from modelcc.quantization.ranges import Rounding
from modelcc.quantization.sensitivity import Switches
from modelcc.quantization.settings import WEIGHTS, QuantizationSettings
from modelcc.quantization.weight_only import layer_weights_only, with_integer_weights
from modelcc.quantization.weights import IntegerWeights

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LayerSelection:
    """Layers, by their nodes' results, that stay ``floats``, and those with 16-bit activations."""

    floats: frozenset[str] = _NONE
    wide: frozenset[str] = _NONE


ALL = LayerSelection()


@dataclass(frozen=True)
class Scheme:
    """``seen`` are histograms of tensors that may be quantised."""

    graph: Graph
    settings: QuantizationSettings
    seen: Mapping[str, Histogram]
    _plans: dict[LayerSelection, QuantizationPlan] = field(
        init=False, compare=False, default_factory=dict[LayerSelection, QuantizationPlan]
    )
    _roundings: dict[LayerSelection, dict[str, Rounding]] = field(
        init=False, compare=False, default_factory=dict[LayerSelection, "dict[str, Rounding]"]
    )

    def plan(self, selection: LayerSelection = ALL) -> QuantizationPlan:
        """The quantisation plan."""
        if selection not in self._plans:
            self._plans[selection] = self._planned(selection)
        return self._plans[selection]

    def roundings(self, selection: LayerSelection = ALL) -> dict[str, Rounding]:
        """Roundings of tensors."""
        if selection not in self._roundings:
            self._roundings[selection] = self._chosen(selection)
        return self._roundings[selection]

    def _planned(self, selection: LayerSelection) -> QuantizationPlan:
        settings = self.settings
        skip = selection.floats.union(settings.skip)
        plan = quantization_plan(self.graph, settings.ops, skip)
        if settings.activation is not None:
            return plan
        weighty = tuple(layer for layer in plan.layers if layer.weights)
        return replace(plan, integer=_NONE, rounded={}, layers=weighty)

    def _chosen(self, selection: LayerSelection) -> dict[str, Rounding]:
        dtype, plan = self.settings.activation, self.plan(selection)
        if dtype is None:
            return {}
        dtypes: dict[str, DType] = dict.fromkeys(plan.rounded.values(), dtype)
        for layer in plan.layers:
            if layer.node.outputs[0] in selection.wide:
                dtypes |= dict.fromkeys((plan.rounded[name] for name in layer.operands), I16)
        return roundings(plan, self.seen, dtypes, self.settings)

    def numbers(self, selection: LayerSelection = ALL) -> Numbers:
        """Roundings and weights for the plan."""
        weights = WEIGHTS[self.settings.weights]
        return Numbers(self.roundings(selection), weights, self.settings.per_channel)

    def weights(self, selection: LayerSelection = ALL) -> dict[str, IntegerWeights]:
        """Integer weights of layers that have any, by their nodes' results."""
        plan, numbers = self.plan(selection), self.numbers(selection)
        layers = (layer for layer in plan.layers if layer.weights)
        if self.settings.activation is None:
            dtype, block = numbers.weights, self.settings.block
            return {
                layer.node.outputs[0]: layer_weights_only(layer, self.graph, dtype, block)
                for layer in layers
            }
        return {
            layer.node.outputs[0]: layer_weights(layer.node, layer.form, self.graph, numbers)
            for layer in layers
        }

    def left(self, selection: LayerSelection = ALL) -> dict[str, Array]:
        """Dequantised weights, in their original shapes, by the results of layers' nodes."""
        found: dict[str, Array] = {}
        layers = {layer.node.outputs[0]: layer for layer in self.plan(selection).layers}
        for name, weights in self.weights(selection).items():
            shape = self.graph.constants[layers[name].weights].data.shape
            floats = weights.floats()
            found[name] = floats if floats.shape == shape else np.ascontiguousarray(floats.T)
        return found

    def choice(self, selection: LayerSelection) -> Switches:
        """The same for a simulation, where 16 bits count as floats."""
        plan, found = self.plan(selection), self.roundings(selection)
        rounded = frozenset(name for name, r in found.items() if r.dtype.bits <= 8)
        return Switches(rounded, frozenset(layer.node.outputs[0] for layer in plan.layers))

    def quantised(self, selection: LayerSelection) -> Graph:
        """The quantised graph."""
        plan, numbers = self.plan(selection), self.numbers(selection)
        if self.settings.activation is None:
            return with_integer_weights(self.graph, plan, numbers.weights, self.settings.block)
        return quantised_graph(self.graph, plan, numbers)


def constant_bytes(graph: Graph) -> int:
    """Bytes of all constants, packed where narrower than a byte."""
    bits = (c.data.size * c.type.dtype.bits for c in graph.constants.values())
    return sum(-(-each // 8) for each in bits)


def integer_bytes(weights: IntegerWeights) -> int:
    """Bytes of integers and their scales."""
    return -(-weights.data.size * dtype_of(weights.data).bits // 8) + weights.scale.nbytes
