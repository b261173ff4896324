"""Quantisation of a float model with calibration data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from modelcc.artifact.file import write_artifact
from modelcc.artifact.replacement import replace_file
from modelcc.driver import compile_model
from modelcc.emit.emission import simplified, write_simplified
from modelcc.exporters.onnx.file import MOST
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.types import Array, dtype_of
from modelcc.quantization.calibration import observed
from modelcc.quantization.correction import corrected
from modelcc.quantization.equalisation import equalised
from modelcc.quantization.plan import QuantizationPlan, QuantizedLayer
from modelcc.quantization.precision import (
    Budget,
    Costs,
    kept_for_bytes,
    kept_for_error,
    too_inexact,
)
from modelcc.quantization.preparation import prepared_graph
from modelcc.quantization.ranges import Rounding
from modelcc.quantization.report import LayerRow, OutputRow, QuantizationReport
from modelcc.quantization.running import Engine, Noise, compared, samples_per_run
from modelcc.quantization.samples import Calibration, Feeds, calibration_feeds
from modelcc.quantization.scheme import ALL, LayerSelection, Scheme, constant_bytes, integer_bytes
from modelcc.quantization.sensitivity import Simulation, layer_errors
from modelcc.quantization.settings import FLOAT, QuantizationSettings
from modelcc.quantization.weights import IntegerWeights

TRIES = 4
"""Attempts at an error budget: errors are simulated on some of the data and then measured."""

Runner = Callable[[Feeds], Mapping[str, Array]]


@dataclass(frozen=True)
class QuantizedModel:
    """An integer graph, to be compiled or saved, with its report."""

    graph: Graph
    report: QuantizationReport
    engine: Engine

    def save(self, path: str | Path) -> None:
        """Writes an ONNX model with QuantizeLinear and DequantizeLinear, or an artifact (``.mcc``).

        The file is written atomically, unless it needs external data; :class:`ModelError` for
        another suffix.
        """
        place = Path(path)
        if place.suffix == ".mcc":
            compiled = compile_model(self.graph, self.engine.options, self.engine.config)
            write_artifact(place, compiled.artifact)
        elif place.suffix == ".onnx" and constant_bytes(self.graph) > MOST:
            write_simplified(self.graph, place)  # external data is referenced by name
        elif place.suffix == ".onnx":
            replace_file(place, lambda temporary: write_simplified(self.graph, temporary))
        else:
            raise ModelError(f"the name of {place} must end with .onnx or .mcc")


def quantised_model(
    graph: Graph, calibration: Calibration | None, settings: QuantizationSettings, engine: Engine
) -> QuantizedModel:
    """``graph`` quantised by ``settings``; :class:`ModelError` if the model, the data or a budget
    do not permit it."""
    before = constant_bytes(simplified(graph))
    ready = prepared_graph(graph)
    scheme = Scheme(equalised(ready) if settings.equalize else ready, settings, {})
    plan = _plan(scheme, graph)
    if calibration is None:
        _check_without_data(settings)
        quantised = scheme.quantised(ALL)
        rows = _rows(scheme, plan, ALL)
        report = _report(scheme, rows, (), before, constant_bytes(quantised), 0)
        return QuantizedModel(quantised, report, engine)
    kept = {*plan.rounded, *(layer.result for layer in plan.layers), *scheme.graph.outputs}

    def batch(feeds: Feeds) -> int:
        return samples_per_run(scheme.graph, kept, feeds)

    feeds = calibration_feeds(calibration, scheme.graph, batch)
    run = engine.runner(scheme.graph, sorted(kept))
    scheme = replace(scheme, seen=observed(scheme.graph, list(plan.rounded), feeds, run, engine))
    return _calibrated(scheme, feeds, run, engine, before)


def _calibrated(
    scheme: Scheme, feeds: Sequence[Feeds], run: Runner, engine: Engine, before: int
) -> QuantizedModel:
    """The model after calibration."""
    settings = scheme.settings
    costs, simulation = Costs({}, {}, 0), None
    if settings.sensitivity or settings.has_budget:
        left = scheme.left()
        simulation = Simulation(
            scheme.graph, scheme.plan(), scheme.roundings(), left, feeds, engine
        )
        costs = _costs(scheme, layer_errors(simulation, scheme.plan()))
    target, nearest = settings.max_error, float("inf")
    for _ in range(TRIES):
        selection = ALL if simulation is None else _selected(scheme, simulation, costs, target)
        found = _carried_out(scheme, selection, costs.errors, feeds, run, engine, before)
        error = found.report.error
        if target is None or settings.max_error is None or error <= settings.max_error:
            return found
        nearest = min(nearest, error)
        target *= 0.9 * settings.max_error / error  # the simulation was too optimistic
    raise too_inexact(nearest, settings.max_error or 0.0)


def _carried_out(
    scheme: Scheme,
    selection: LayerSelection,
    alone: Mapping[str, float],
    feeds: Sequence[Feeds],
    run: Runner,
    engine: Engine,
    before: int,
) -> QuantizedModel:
    """The model with this selection, and its comparison to ``run``, the float model."""
    full = scheme.plan()
    if scheme.settings.correct_bias:
        plan, rounded = scheme.plan(selection), scheme.roundings(selection)
        left = scheme.left(selection)
        graph = corrected(scheme.graph, plan, rounded, left, feeds, engine)
        scheme = replace(scheme, graph=graph)
    quantised = scheme.quantised(selection)
    results = {layer.node.outputs[0]: layer.result for layer in full.layers}
    noise = {name: Noise() for name in {*results.values(), *scheme.graph.outputs}}
    other = engine.runner(quantised, sorted(noise))
    for one in engine.each("comparing with the float model", feeds):
        compared(other(one), run(one), noise)
    rows = tuple(
        replace(row, sqnr=noise[results[row.result]].decibels, alone=alone.get(row.result))
        for row in _rows(scheme, full, selection)
    )
    outputs = tuple(
        OutputRow(name, noise[name].decibels, noise[name].error) for name in scheme.graph.outputs
    )
    report = _report(scheme, rows, outputs, before, constant_bytes(quantised), len(feeds))
    return QuantizedModel(quantised, report, engine)


def _selected(
    scheme: Scheme, simulation: Simulation, costs: Costs, target: float | None
) -> LayerSelection:
    """Layers that stay unquantised by the budgets."""
    settings = scheme.settings
    budget = Budget(target, settings.max_bytes)
    if not settings.has_budget:
        return ALL

    def error_of(selection: LayerSelection) -> float:
        return simulation.error(scheme.choice(selection))

    floats = settings.fallback == FLOAT
    kept = kept_for_bytes(budget, costs, floats)
    if budget.bytes is not None and floats:
        error = error_of(LayerSelection(kept))
        if target is not None and error > target:
            raise too_inexact(error, target)
        return LayerSelection(kept)
    made = LayerSelection if floats else partial(LayerSelection, frozenset())
    layers = scheme.plan().layers
    return made(kept_for_error(budget, costs, layers, lambda names: error_of(made(names))))


def _costs(scheme: Scheme, errors: Mapping[str, float]) -> Costs:
    """Error and saved bytes of each layer."""
    layers = {layer.node.outputs[0]: layer for layer in scheme.plan().layers}
    saved = dict.fromkeys(layers, 0)
    for name, weights in scheme.weights().items():
        whole = scheme.graph.constants[layers[name].weights].nbytes
        saved[name] = whole - integer_bytes(weights)
    return Costs(errors, saved, constant_bytes(scheme.graph))


def _plan(scheme: Scheme, graph: Graph) -> QuantizationPlan:
    """The plan; :class:`ModelError` if it is empty, or names are unknown."""
    settings, nodes = scheme.settings, scheme.graph.nodes
    named = {name for node in (*nodes, *graph.nodes) for name in (*node.outputs, *node.source)}
    unknown = next((name for name in settings.skip if name not in named), None)
    if unknown is not None:
        raise ModelError(f"there is no node or value {unknown!r} to skip", (graph.name,))
    can = sorted({type(n.op).__name__ for n in nodes if n.op.has("quantize")})
    wrong = next((name for name in settings.ops if name not in can), None)
    listed = f"it has {', '.join(can) or 'none'}"
    if wrong is not None:
        raise ModelError(f"the model has no {wrong} that can be quantised", (graph.name,), listed)
    plan = scheme.plan()
    if not any(layer.form.weights is not None for layer in plan.layers):
        kinds = sorted({str(type.dtype) for type in graph.types.values()})
        what = "there is nothing to quantise: no product or convolution of f32"
        hint = f"its values are {', '.join(kinds)}; of what can be quantised {listed}"
        raise ModelError(what, (graph.name,), hint)
    return plan


def _check_without_data(settings: QuantizationSettings) -> None:
    """Rejects settings that need measurements."""
    wanted = {
        "activations": settings.activation is not None,
        "sensitivity": settings.sensitivity,
        "correct_bias": settings.correct_bias,
        "a budget": settings.has_budget,
    }
    what = next((name for name, asked in wanted.items() if asked), None)
    if what is not None:
        hint = "give examples of inputs, or activations='none' for weights alone"
        raise ModelError(f"{what} needs calibration data", (), hint)


def _rows(
    scheme: Scheme, plan: QuantizationPlan, selection: LayerSelection
) -> tuple[LayerRow, ...]:
    rounded = scheme.roundings(selection)
    weights = scheme.weights(selection)
    made = {layer.node.outputs[0] for layer in scheme.plan(selection).layers}
    return tuple(_row(layer, rounded, weights, made) for layer in plan.layers)


def _row(
    layer: QuantizedLayer,
    rounded: Mapping[str, Rounding],
    weights: Mapping[str, IntegerWeights],
    made: Set[str],
) -> LayerRow:
    name = layer.node.outputs[0]
    first = next((rounded[n] for n in layer.operands if n in rounded and name in made), None)
    own = dtype_of(weights[name].data).bits if name in weights else None
    return LayerRow(
        layer.name,
        name,
        type(layer.node.op).__name__,
        32 if first is None else first.dtype.bits,
        (32 if layer.weights else None) if own is None else own,
        None if first is None else float(first.scale),
        None if first is None else first.zero,
        None,
        None,
    )


def _report(
    scheme: Scheme,
    rows: tuple[LayerRow, ...],
    outputs: tuple[OutputRow, ...],
    before: int,
    after: int,
    runs: int,
) -> QuantizationReport:
    settings = asdict(scheme.settings)
    return QuantizationReport(scheme.graph.name, settings, rows, outputs, before, after, runs)
