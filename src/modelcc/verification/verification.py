"""Verification of compiled models: against the reference interpreter, and a peer if available."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Protocol

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import Manifest
from modelcc.driver import NOWHERE, ModelSource, compile_model, import_for, target_of
from modelcc.feeds.random import index_limits, nominal_sizes, random_feeds, size_constraints
from modelcc.frontends.choice import ONNX, frontend_of
from modelcc.ir.graph import Graph, Node
from modelcc.ir.graph_interpreter import bind_feeds, interpret
from modelcc.ir.graph_verifier import node_place
from modelcc.ir.index import Sym
from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.pipeline import StageRun
from modelcc.report.in_artifact import report_in
from modelcc.report.lowered import products_of
from modelcc.targets.base import BuildConfig, Target
from modelcc.verification.bisection import Culprit, differences_by_interpreter, find_culprit
from modelcc.verification.comparison import (
    BITS,
    Difference,
    compare,
    compare_all,
    lowered_tolerance,
)


class Peer(Protocol):
    """Another engine that runs the same model."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name."""
        ...


@dataclass(frozen=True)
class Layer:
    """The first node with a wrong result: the user's names for it, its op and the difference."""

    place: tuple[str, ...]
    op: str
    difference: Difference


@dataclass(frozen=True)
class Verification:
    """Outputs against the reference interpreter (``reference``) and onnxruntime (``peer``).

    ``peer`` is empty if onnxruntime is not installed or the model is not an ONNX model.
    ``precision`` describes products in lower precision, if that was requested.  ``layer`` is the
    first node that differs and ``culprit`` the first stage that breaks the program, where these
    were requested and found.
    """

    model: str
    sizes: Mapping[str, int]
    reference: tuple[Difference, ...]
    peer: tuple[Difference, ...] = ()
    precision: str = ""
    layer: Layer | None = None
    culprit: Culprit | None = None

    @property
    def agrees(self) -> bool:
        """Whether every output is correct."""
        return all(difference.agrees for difference in (*self.reference, *self.peer))


@dataclass(frozen=True)
class Request:
    """What to verify: a model, options of its compilation, and inputs.

    ``feeds`` are inputs; those missing are random from ``seed``, with ``sizes`` for their named
    dimensions.  ``tolerance`` replaces that of
    :data:`~modelcc.verification.comparison.TOLERANCES`.
    ``artifact`` is verified, if given, instead of compiling ``model``.
    """

    model: ModelSource
    options: Options
    config: BuildConfig = NOWHERE
    feeds: Mapping[str, Array] = field(default_factory=dict[str, Array])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    seed: int = 0
    tolerance: float | None = None
    artifact: Artifact | None = None


@dataclass(frozen=True)
class Subject:
    """A model's graph with inputs for it and the values of its named dimensions; ``tolerance`` is
    the accepted error (None: by types)."""

    graph: Graph
    feeds: Mapping[str, Array]
    sizes: Mapping[str, int]
    tolerance: float | None = None


def subject_of(request: Request) -> Subject:
    """The graph of a request and all its inputs."""
    request.config.report("importing the model", 0, 1)
    graph = import_for(target_of(request.options), request.model, request.options)
    request.config.report("importing the model", 1, 1)
    types = {name: graph.types[name] for name in graph.inputs if name not in request.feeds}
    shapes = [graph.types[name].shape for name in graph.inputs]
    dims, constraints = size_constraints(graph)
    sizes = nominal_sizes(dims, request.sizes, shapes, constraints)
    random = random_feeds(types, sizes, request.seed, index_limits(graph))
    feeds = {**request.feeds, **random}
    return Subject(graph, feeds, bind_feeds(graph, feeds), _tolerance(request, graph))


def _tolerance(request: Request, graph: Graph) -> float | None:
    """The requested tolerance, else that of the requested precision."""
    precision = request.options.precision
    if request.tolerance is not None or precision not in BITS:
        return request.tolerance
    products = sum(1 for _ in products_of(graph))
    return lowered_tolerance(precision, products)


def verify_model(request: Request) -> Verification:
    """Compile the model, run it and compare its outputs."""
    subject = subject_of(request)
    target, artifact = _compiled(request)
    got = target.load(artifact, request.options.threads).run(subject.feeds)
    report = report_in(artifact)
    expected = _interpreted(request.config, subject)
    request.config.report("running onnxruntime", 0, 1)
    peer = peer_of(request.model, request.options.threads)
    others = peer.run(subject.feeds) if peer else {}
    request.config.report("running onnxruntime", 1, 1)
    wanted = {name: others[name] for name in got if name in others}
    return Verification(
        subject.graph.name,
        subject.sizes,
        compare_all(got, expected, subject.tolerance),
        compare_all(got, wanted, subject.tolerance),
        "" if report is None else report.precision,
    )


def _interpreted(config: BuildConfig, subject: Subject) -> dict[str, Array]:
    """Results of the reference interpreter, which reports its progress."""
    title, total = "running the reference interpreter", len(subject.graph.nodes)
    nodes = count(1)
    config.report(title, 0, total)

    def tell(node: Node, values: tuple[Array, ...]) -> None:
        config.report(title, next(nodes), total)

    results = interpret(subject.graph, subject.feeds, tell)
    config.report(title, total, total)
    return results


def verified(request: Request, layers: bool = False, bisect: bool = False) -> Verification:
    """As :func:`verify_model`; ``layers`` also locates the node, ``bisect`` the stage."""
    result = verify_model(request)
    if layers:
        result = first_wrong_layer(request, result)
    return first_wrong_stage(request, result) if bisect else result


def first_wrong_layer(request: Request, result: Verification) -> Verification:
    """``result`` with the first node that differs when the results of all nodes are kept.

    Keeping results prevents most fusion, so a fault of fusion may not show here.
    """
    subject = subject_of(request)
    expected: dict[str, tuple[Node, Array]] = {}

    def keep(node: Node, results: tuple[Array, ...]) -> None:
        named = zip(node.outputs, results, strict=True)
        expected.update({name: (node, result) for name, result in named if name})

    interpret(subject.graph, subject.feeds, keep)
    kept = replace(request, options=replace(request.options, keep=tuple(expected)))
    target, artifact = _compiled(kept)
    got = target.load(artifact, request.options.threads).run(subject.feeds)
    for name, (node, value) in expected.items():
        difference = compare(name, got[name], value, subject.tolerance)
        if not difference.agrees:
            layer = Layer(node_place(node), node.op.mnemonic(), difference)
            return replace(result, layer=layer)
    return result


def first_wrong_stage(request: Request, result: Verification) -> Verification:
    """``result`` with the stage of the pipeline that broke the program, by the interpreters."""
    subject = subject_of(request)
    expected = interpret(subject.graph, subject.feeds)
    runs: list[StageRun] = []
    compiled = compile_model(request.model, request.options, request.config, runs.append)
    load = partial(compiled.target.load, threads=request.options.threads)
    check = differences_by_interpreter(
        subject.feeds, subject.sizes, expected, load, subject.tolerance
    )
    return replace(result, culprit=find_culprit(runs, check))


def peer_of(model: ModelSource, threads: int) -> Peer | None:
    """``model`` in onnxruntime; None if that is not installed or it is not an ONNX model."""
    is_onnx = not isinstance(model, Graph) and frontend_of(model) is ONNX
    if not is_onnx or find_spec("onnxruntime") is None:
        return None
    make: Callable[..., Peer] = import_module("modelcc.bench.onnxruntime_peer").OnnxruntimeModel
    return make(str(model) if isinstance(model, Path) else model, threads)


def _compiled(request: Request) -> tuple[Target, Artifact]:
    if request.artifact is not None:
        return target_of(request.options), request.artifact
    compiled = compile_model(request.model, request.options, request.config)
    return compiled.target, compiled.artifact


def fixed_sizes(manifest: Manifest, graph: Graph) -> dict[str, int]:
    """Values of named dimensions of ``graph`` that are static in a model compiled from it."""
    known = {spec.name: spec.shape for spec in manifest.inputs}
    pairs = (
        pair
        for name in graph.inputs
        for pair in zip(graph.types[name].shape, known.get(name, ()), strict=False)
    )
    return {own.name: size for own, size in pairs if isinstance(own, Sym) and isinstance(size, int)}
