"""A pass that goes wrong is found, and the rewrite in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from small_models import mlp

from modelcc.driver import import_model, pipeline, target_of
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ops.activation import Relu
from modelcc.ops.elementwise import Tanh
from modelcc.pipeline import (
    Stage,
    StageRun,
    before_block,
    block,
    from_block,
    numbered,
    run_stages,
)
from modelcc.targets.base import Workplace
from modelcc.verification.bisection import differences_by_interpreter, find_culprit
from tests.machines import chosen_options

OPTIONS = chosen_options(threads=1)


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


def runs_of(stages: tuple[Stage, ...]) -> list[StageRun]:
    runs: list[StageRun] = []
    run_stages(stages, mlp(), runs.append)
    return runs


def checker() -> object:
    graph = import_model(mlp(), OPTIONS)
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)}
    return differences_by_interpreter(feeds, {}, interpret(graph, feeds))


def good_stages() -> tuple[Stage, ...]:
    return before_block(pipeline(target_of(OPTIONS), OPTIONS, Workplace()), "emit")


def test_nothing_is_found_in_a_good_pipeline() -> None:
    assert find_culprit(runs_of(good_stages()), checker()) is None


def test_the_stage_and_its_rewrite_are_found() -> None:
    good = good_stages()
    bad = (*before_block(good, "lower"), *block("graph", Renames()), *from_block(good, "lower"))
    culprit = find_culprit(runs_of(bad), checker())
    assert culprit is not None
    assert (culprit.stage, culprit.rewrite) == ("graph/Renames", 2)
    assert not culprit.differences[0].agrees


def test_stages_without_interpreter_come_with_the_next_one() -> None:
    def spoil(program: object) -> object:
        functions = {}
        for item in program.items:  # type: ignore[attr-defined]
            if hasattr(item, "function"):
                functions[item.function.name] = replace(item.function, body=())
        items = tuple(
            replace(i, function=functions[i.function.name]) if hasattr(i, "function") else i
            for i in program.items  # type: ignore[attr-defined]
        )
        return replace(program, items=items)  # type: ignore[type-var]

    good = good_stages()
    bad = (*before_block(good, "plan"), Stage("loop", "spoil", spoil), *from_block(good, "plan"))
    culprit = find_culprit(runs_of(bad), checker())
    assert culprit is not None and "loop/spoil" in culprit.stage and "schedule" in culprit.stage


def test_names_are_distinct_and_stages_limited() -> None:
    names = [stage.name for stage in good_stages()]
    assert len(names) == len(set(names))
    (stage,) = numbered(block("graph", Renames()))
    assert stage.counts_rewrites and stage.limited(3).run == Renames(limit=3)
