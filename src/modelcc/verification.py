"""Is the compiled model right?  Against the reference interpreter, and a peer if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

from modelcc.bisection import Culprit, differences_by_interpreter, find_culprit
from modelcc.comparison import Difference, compare, compare_all
from modelcc.driver import NOWHERE, ModelSource, compile_model, import_model
from modelcc.feeds import index_limits, nominal_sizes, random_feeds
from modelcc.ir.graph import Graph, Node
from modelcc.ir.graph_interpreter import bind_feeds, interpret
from modelcc.ir.graph_verifier import node_place
from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.pipeline import StageRun
from modelcc.targets.base import Workplace


class Peer(Protocol):
    """Another engine that runs the same model."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name."""
        ...


@dataclass(frozen=True)
class Layer:
    """The first node whose result is wrong: the user's names for it, its op and how it differs."""

    place: tuple[str, ...]
    op: str
    difference: Difference


@dataclass(frozen=True)
class Verification:
    """Outputs against the reference interpreter (``reference``) and onnxruntime (``peer``).

    ``peer`` is empty where onnxruntime is not installed or the model is not an ONNX model.
    ``layer`` is the first node that differs and ``culprit`` the first stage that breaks the
    program, where these were asked for and found.
    """

    model: str
    sizes: Mapping[str, int]
    reference: tuple[Difference, ...]
    peer: tuple[Difference, ...] = ()
    layer: Layer | None = None
    culprit: Culprit | None = None

    @property
    def agrees(self) -> bool:
        """Whether every output is right."""
        return all(difference.agrees for difference in (*self.reference, *self.peer))


@dataclass(frozen=True)
class Request:
    """What to verify: a model, how to compile it, and inputs.

    ``feeds`` are inputs; those missing are random from ``seed``, with ``sizes`` for their named
    dimensions.  ``tolerance`` replaces the one of :data:`~modelcc.comparison.TOLERANCES`.
    """

    model: ModelSource
    options: Options
    workplace: Workplace = NOWHERE
    feeds: Mapping[str, Array] = field(default_factory=dict[str, Array])
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    seed: int = 0
    tolerance: float | None = None


@dataclass(frozen=True)
class Subject:
    """A model's graph with inputs for it and the values of its named dimensions."""

    graph: Graph
    feeds: Mapping[str, Array]
    sizes: Mapping[str, int]


def subject_of(request: Request) -> Subject:
    """The graph of a request and all its inputs."""
    graph = import_model(request.model, request.options)
    types = {name: graph.types[name] for name in graph.inputs if name not in request.feeds}
    shapes = [graph.types[name].shape for name in graph.inputs]
    sizes = nominal_sizes(graph.dims, request.sizes, shapes)
    random = random_feeds(types, sizes, request.seed, index_limits(graph))
    feeds = {**request.feeds, **random}
    return Subject(graph, feeds, bind_feeds(graph, feeds))


def verify_model(request: Request) -> Verification:
    """Compile the model, run it and compare its outputs."""
    subject = subject_of(request)
    got = _run_compiled(request, subject)
    request.workplace.report("running the reference interpreter", 0, 1)
    expected = interpret(subject.graph, subject.feeds)
    request.workplace.report("running the reference interpreter", 1, 1)
    peer = peer_of(request.model, request.options.threads)
    others = peer.run(subject.feeds) if peer else {}
    wanted = {name: others[name] for name in got if name in others}
    return Verification(
        subject.graph.name,
        subject.sizes,
        compare_all(got, expected, request.tolerance),
        compare_all(got, wanted, request.tolerance),
    )


def first_wrong_layer(request: Request, result: Verification) -> Verification:
    """``result`` with the first node that differs when the results of all nodes are kept.

    Keeping results leaves little to fuse, so a fault of fusion may not show here.
    """
    subject = subject_of(request)
    expected: dict[str, tuple[Node, Array]] = {}

    def keep(node: Node, results: tuple[Array, ...]) -> None:
        named = zip(node.outputs, results, strict=True)
        expected.update({name: (node, result) for name, result in named if name})

    interpret(subject.graph, subject.feeds, keep)
    kept = replace(request, options=replace(request.options, keep=tuple(expected)))
    got = _run_compiled(kept, subject)
    for name, (node, value) in expected.items():
        difference = compare(name, got[name], value, request.tolerance)
        if not difference.agrees:
            layer = Layer(node_place(node), node.op.mnemonic(), difference)
            return replace(result, layer=layer)
    return result


def first_wrong_stage(request: Request, result: Verification) -> Verification:
    """``result`` with the stage of the pipeline that broke the program, by the interpreters."""
    subject = subject_of(request)
    expected = interpret(subject.graph, subject.feeds)
    runs: list[StageRun] = []
    compile_model(request.model, request.options, request.workplace, runs.append)
    check = differences_by_interpreter(subject.feeds, subject.sizes, expected, request.tolerance)
    return replace(result, culprit=find_culprit(runs, check))


def peer_of(model: ModelSource, threads: int) -> Peer | None:
    """``model`` in onnxruntime; None where that is not installed or cannot take it."""
    if isinstance(model, Graph) or find_spec("onnxruntime") is None:
        return None
    engine = import_module("modelcc.onnxruntime_peer")
    source = str(model) if isinstance(model, Path) else model
    return cast(Peer, engine.OnnxruntimeModel(source, threads))


def _run_compiled(request: Request, subject: Subject) -> dict[str, Array]:
    compiled = compile_model(request.model, request.options, request.workplace)
    session = compiled.target.load(compiled.artifact, request.options.threads)
    return session.run(subject.feeds)
