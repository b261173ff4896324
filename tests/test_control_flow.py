"""Random models with control flow keep their meaning on every level, and as native code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

import modelcc
from modelcc.driver import pipeline, target_of
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.program import Program
from modelcc.ir.types import Array
from modelcc.levels.interpretation import INTERPRETED, interpret_level
from modelcc.levels.text import constants_of, level_text, parse_level, verify_level
from modelcc.ops.registry import dialects
from modelcc.pipeline import StageRun, run_stages
from modelcc.targets.base import BuildConfig
from tests.machines import chosen_options
from tests.program_cases import check_text
from tests.random_control import control_models

QUICK = settings(
    max_examples=40,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck(check) for check in HealthCheck],
)


def example(batch: int) -> dict[str, Array]:
    rng = np.random.default_rng(batch)
    return {"x": rng.normal(size=(batch, 4)).astype(np.float32)}


def assert_same(got: Array, wanted: Array, where: str) -> None:
    assert got.shape == wanted.shape, where
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-4 * scale, err_msg=where)


@settings(QUICK, max_examples=25)
@given(control_models())
def test_every_stage_keeps_the_meaning(graph: Graph) -> None:
    wanted = [interpret(graph, example(batch)) for batch in (2, 3)]
    options = chosen_options()

    def check(run: StageRun) -> None:
        verify_level(run.after)
        if isinstance(run.after, Program):
            check_text(run.after)
        if not isinstance(run.after, INTERPRETED):
            return
        for batch, results in zip((2, 3), wanted, strict=True):
            got = interpret_level(run.after, example(batch), {"batch": batch})
            for name, array in zip(graph.outputs, got, strict=True):
                assert_same(array, results[name], f"{run.stage.label} at {batch}")

    last = ("emit", "build", "package")
    stages = [
        s for s in pipeline(target_of(options), options, BuildConfig()) if s.block not in last
    ]
    run_stages(stages, graph, check)


@QUICK
@given(control_models())
def test_native_code_agrees_with_the_interpreter(graph: Graph) -> None:
    _check_native(graph, "native")


@settings(QUICK, max_examples=5)
@given(control_models())
def test_c_agrees_with_the_interpreter(graph: Graph) -> None:
    _check_native(graph, "c")


def _check_native(graph: Graph, target: str) -> None:
    net = modelcc.compile(graph, target=target, threads=1, cache=None)
    for batch in (1, 2, 5):
        arrays = example(batch)
        got, wanted = net.run(arrays), interpret(graph, arrays)
        for name in graph.outputs:
            assert_same(got[name], wanted[name], f"{name} at batch {batch}")


@pytest.mark.parametrize("level", ["graph", "tensor", "program"])
@settings(QUICK, max_examples=10)
@given(graph=control_models())
def test_text_reads_back(level: str, graph: Graph) -> None:
    options = chosen_options()
    found: list[object] = []
    block = {"graph": "graph", "tensor": "tensor", "program": "plan"}[level]

    def note(run: StageRun) -> None:
        if run.stage.block == block:
            found.append(run.after)

    last = ("emit", "build", "package")
    stages = [
        s for s in pipeline(target_of(options), options, BuildConfig()) if s.block not in last
    ]
    run_stages(stages, graph, note)
    program = found[-1]
    text = level_text(program)
    assert level_text(parse_level(level, text, constants_of(program), dialects())) == text
