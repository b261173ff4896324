"""Is the compiled model right?  Against the reference interpreter, and a peer if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, cast

from modelcc.bisection import Culprit, differences_by_interpreter, find_culprit
from modelcc.comparison import Difference, compare, compare_all
from modelcc.driver import ModelSource, compile_model, import_model
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
class Subject:
    """A model with inputs for it and the values of its named dimensions."""

    model: ModelSource
    graph: Graph
    feeds: Mapping[str, Array]
    sizes: Mapping[str, int]


def subject_of(
    model: ModelSource, options: Options, feeds: Mapping[str, Array] | None, seed: int
) -> Subject:
    """``model`` with ``feeds``, those missing filled with random values."""
    graph = import_model(model, options)
    given = dict(feeds or {})
    sizes = nominal_sizes(graph.dims, {})
    types = {name: graph.types[name] for name in graph.inputs if name not in given}
    arrays = given | random_feeds(types, sizes, seed, index_limits(graph))
    return Subject(model, graph, arrays, bind_feeds(graph, arrays))


def verify_model(
    model: ModelSource,
    options: Options,
    workplace: Workplace,
    feeds: Mapping[str, Array] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
) -> Verification:
    """Compile ``model``, run it and compare its outputs."""
    subject = subject_of(model, options, feeds, seed)
    got = _run_compiled(subject.model, options, workplace, subject.feeds)
    workplace.report("running the reference interpreter", 0, 1)
    expected = interpret(subject.graph, subject.feeds)
    workplace.report("running the reference interpreter", 1, 1)
    peer = peer_of(model, options.threads)
    others = peer.run(subject.feeds) if peer else {}
    wanted = {name: others[name] for name in got if name in others}
    return Verification(
        subject.graph.name,
        subject.sizes,
        compare_all(got, expected, tolerance),
        compare_all(got, wanted, tolerance),
    )


def first_wrong_layer(
    model: ModelSource,
    options: Options,
    workplace: Workplace,
    feeds: Mapping[str, Array] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
) -> Layer | None:
    """The first node that differs when the result of every node is kept; None if none does.

    Keeping results leaves little to fuse, so a fault of fusion may not show here.
    """
    subject = subject_of(model, options, feeds, seed)
    expected: dict[str, tuple[Node, Array]] = {}

    def keep(node: Node, results: tuple[Array, ...]) -> None:
        named = zip(node.outputs, results, strict=True)
        expected.update({name: (node, result) for name, result in named if name})

    interpret(subject.graph, subject.feeds, keep)
    kept = replace(options, keep=tuple(expected))
    got = _run_compiled(subject.model, kept, workplace, subject.feeds)
    for name, (node, result) in expected.items():
        difference = compare(name, got[name], result, tolerance)
        if not difference.agrees:
            return Layer(node_place(node), node.op.mnemonic(), difference)
    return None


def first_wrong_stage(
    model: ModelSource,
    options: Options,
    workplace: Workplace,
    feeds: Mapping[str, Array] | None = None,
    seed: int = 0,
    tolerance: float | None = None,
) -> Culprit | None:
    """The stage of the pipeline that broke the program, by its interpreters; None if none did."""
    subject = subject_of(model, options, feeds, seed)
    expected = interpret(subject.graph, subject.feeds)
    runs: list[StageRun] = []
    compile_model(model, options, workplace, runs.append)
    check = differences_by_interpreter(subject.feeds, subject.sizes, expected, tolerance)
    return find_culprit(runs, check)


def peer_of(model: ModelSource, threads: int) -> Peer | None:
    """``model`` in onnxruntime; None where that is not installed or cannot take it."""
    if isinstance(model, Graph) or find_spec("onnxruntime") is None:
        return None
    engine = import_module("modelcc.onnxruntime_peer")
    source = str(model) if isinstance(model, Path) else model
    return cast(Peer, engine.OnnxruntimeModel(source, threads))


def _run_compiled(
    model: ModelSource, options: Options, workplace: Workplace, feeds: Mapping[str, Array]
) -> dict[str, Array]:
    compiled = compile_model(model, options, workplace)
    return compiled.target.load(compiled.artifact, options.threads).run(feeds)
