"""Random models keep their meaning through every stage of the pipeline, and as native code."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import modelcc
from modelcc.driver import pipeline, target_of
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import evaluate
from modelcc.ir.program import Program
from modelcc.ir.types import Array
from modelcc.levels.interpretation import INTERPRETED, interpret_level
from modelcc.levels.text import verify_level
from modelcc.pipeline import StageRun, run_stages
from modelcc.targets.base import BuildConfig
from tests.machines import chosen_options
from tests.program_cases import check_text
from tests.random_models import RandomModel, image_models, product_models, row_models

NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
QUICK = settings(
    max_examples=30,
    phases=NO_SHRINKING,
    suppress_health_check=[HealthCheck(check) for check in HealthCheck],
)
SLOW = settings(QUICK, max_examples=6)
MODELS = st.one_of(image_models(), row_models(), product_models())
TOLERANCE = 2e-4


def feeds(graph: Graph, batch: int) -> dict[str, Array]:
    rng = np.random.default_rng(batch)
    shape = [evaluate(e, {"batch": batch}) for e in graph.types["x"].shape]
    return {"x": rng.normal(size=shape).astype(np.float32)}


def assert_same(got: Array, wanted: Array, where: str) -> None:
    assert got.shape == wanted.shape, where
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=TOLERANCE * scale, err_msg=where)


@SLOW
@given(MODELS)
def test_every_stage_keeps_the_meaning(model: RandomModel) -> None:
    graph = model.graph
    arrays = feeds(graph, 2)
    wanted = interpret(graph, arrays)
    options = chosen_options()

    def check(run: StageRun) -> None:
        verify_level(run.after)
        if isinstance(run.after, Program):
            check_text(run.after)
        if isinstance(run.after, INTERPRETED):
            results = interpret_level(run.after, arrays, {"batch": 2})
            for name, got in zip(graph.outputs, results, strict=True):
                assert_same(got, wanted[name], run.stage.label)

    last = ("emit", "build", "package")
    stages = [
        s for s in pipeline(target_of(options), options, BuildConfig()) if s.block not in last
    ]
    run_stages(stages, graph, check)


@QUICK
@given(MODELS)
def test_native_code_agrees_with_the_interpreter(model: RandomModel) -> None:
    graph = model.graph
    net = modelcc.compile(graph, threads=1, cache=None)
    for batch in (1, 3):
        arrays = feeds(graph, batch)
        got, wanted = net.run(arrays), interpret(graph, arrays)
        for name in graph.outputs:
            assert_same(got[name], wanted[name], f"{name} at batch {batch}")
