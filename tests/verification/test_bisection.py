"""A pass that goes wrong is found, and the rewrite in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, helper
from small_models import mlp, model

from modelcc.driver import Translation, import_model, pipeline, target_of
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.program import Program
from modelcc.ops.activation import Relu
from modelcc.ops.elementwise import Tanh
from modelcc.pipeline import (
    PipelineStage,
    StageRun,
    before_block,
    block,
    from_block,
    numbered,
    run_stages,
)
from modelcc.targets.base import BuildConfig
from modelcc.verification.bisection import Differences, differences_by_interpreter, find_culprit
from tests.machines import chosen_options

OPTIONS = chosen_options(threads=1)
TARGET = target_of(OPTIONS)


@dataclass(frozen=True)
class Renames:
    """Rewrites the names of nodes' sources, one a rewrite, which changes nothing; the second
    rewrite also makes Tanh of Relu."""

    limit: int | None = None

    def __call__(self, graph: Graph) -> Graph:
        nodes = list(graph.nodes)
        count = len(nodes) if self.limit is None else min(self.limit, len(nodes))
        for i in range(count):
            nodes[i] = replace(nodes[i], source=("seen",))
        if count >= 2:
            nodes = [replace(n, op=Tanh()) if isinstance(n.op, Relu) else n for n in nodes]
        return replace(graph, nodes=tuple(nodes))


def layers() -> ModelProto:
    """Products of which the first waits, in the arena, for the sum with the third."""
    generator = np.random.default_rng(3)
    shapes = {"w0": (6, 20), "w1": (20, 20), "w2": (20, 20), "w3": (20, 3)}
    arrays = {n: generator.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    nodes = (
        helper.make_node("MatMul", ["x", "w0"], ["h"]),
        helper.make_node("MatMul", ["h", "w1"], ["g"]),
        helper.make_node("MatMul", ["g", "w2"], ["e"]),
        helper.make_node("Add", ["h", "e"], ["s"]),
        helper.make_node("MatMul", ["s", "w3"], ["y"]),
    )
    return model(nodes, {"x": (2, 6)}, {"y": (2, 3)}, arrays)


def runs_of(stages: tuple[PipelineStage, ...], source: ModelProto) -> list[StageRun]:
    runs: list[StageRun] = []
    run_stages(stages, source, runs.append)
    return runs


def checker(source: ModelProto) -> Differences:
    graph = import_model(source, OPTIONS)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)}
    load = partial(TARGET.load, threads=1)
    return differences_by_interpreter(feeds, {}, interpret(graph, feeds), load)


def good_stages() -> tuple[PipelineStage, ...]:
    return pipeline(TARGET, OPTIONS, BuildConfig())


def test_nothing_is_found_in_a_good_pipeline() -> None:
    for source in (mlp(), layers()):
        assert find_culprit(runs_of(good_stages(), source), checker(source)) is None


def test_the_stage_and_its_rewrite_are_found() -> None:
    good = before_block(good_stages(), "emit")
    bad = (*before_block(good, "lower"), *block("graph", Renames()), *from_block(good, "lower"))
    culprit = find_culprit(runs_of(bad, mlp()), checker(mlp()))
    assert culprit is not None
    assert (culprit.stage, culprit.rewrite) == ("graph/Renames", 2)
    assert not culprit.differences[0].agrees


def does_nothing(program: Program) -> Program:
    """The first kernel has lost its body."""
    first, *others = program.callees
    return replace(program, callees=(replace(first, body=()), *others))


def too_early(program: Program) -> Program:
    """The last step comes first."""
    return replace(program, steps=(program.steps[-1], *program.steps[:-1]))


def in_one_place(program: Program) -> Program:
    """All that is in the arena begins where it does."""
    placed = program.placed
    bindings = {name: replace(binding, offset=0) for name, binding in placed.bindings.items()}
    return replace(program, placement=replace(placed, bindings=bindings))


def stores_nothing(emitted: Translation) -> Translation:
    """Vectors and numbers stay in registers."""
    modules = [replace(m, text=re.sub(r"\n *store [^\n]*", "", m.text)) for m in emitted.modules]
    return replace(emitted, modules=tuple(modules))


FAULTS: dict[str, Callable[[Any], Any]] = {
    "schedule/schedule": does_nothing,
    "loop/legalize": does_nothing,
    "plan/order_steps": too_early,
    "plan/plan_memory": in_one_place,
    "emit/emit": stores_nothing,
}


@pytest.mark.parametrize("label", FAULTS)
def test_a_fault_after_scheduling_is_found(label: str) -> None:
    def faulty(stage: PipelineStage) -> PipelineStage:
        right = stage.run
        return replace(stage, run=lambda program: FAULTS[label](right(program)))

    bad = tuple(faulty(stage) if stage.label == label else stage for stage in good_stages())
    culprit = find_culprit(runs_of(bad, layers()), checker(layers()))
    assert culprit is not None
    # Of emitting, building and packaging the last alone gives something to run.
    named = f"{label}, build/build, package/package" if label == "emit/emit" else label
    assert culprit.stage == named


def test_names_are_distinct_and_stages_limited() -> None:
    names = [stage.name for stage in good_stages()]
    assert len(names) == len(set(names))
    (stage,) = numbered(block("graph", Renames()))
    assert stage.counts_rewrites and stage.limited(3).run == Renames(limit=3)
