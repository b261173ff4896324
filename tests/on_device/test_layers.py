"""Estimates of layers against exact counts in QEMU."""

from __future__ import annotations

import pytest

from modelcc.on_device.board_run import any_inputs, input_types, run_on_board
from modelcc.on_device.layers import layers_of, trace_events
from modelcc.targets.mcu.cost import step_costs
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.machine import MODELS
from tests.embedded import embedded, keyword_spotter


@pytest.mark.parametrize("name", ["cortex-m4", "riscv32imc"])
def test_estimates_are_near_exact_counts(name: str) -> None:
    if missing := missing_tools(MODELS[name]):
        pytest.skip(missing)
    model = embedded(keyword_spotter(32, 13, 6), name)
    estimated = layers_of(model.program, model.machine, step_costs(model.program, model.machine))
    measured = run_on_board(model, any_inputs(input_types(model), 1), "-O2")
    if measured.counts is None:
        pytest.skip("there is no compiler for this machine")
    exact = layers_of(model.program, model.machine, measured.counts.steps)
    assert [layer.source for layer in estimated] == [layer.source for layer in exact]
    whole = sum(layer.instructions for layer in exact)
    for guess, right in zip(estimated, exact, strict=True):
        if right.macs and right.instructions > whole / 20:
            assert guess.instructions == pytest.approx(right.instructions, rel=0.25), right.name


def test_traces_follow_each_other() -> None:
    spans = trace_events([("a", 2.0, {}), ("b", 3.0, {"n": 1})], "net")["traceEvents"]
    assert isinstance(spans, list)
    assert [(s["name"], s["ts"], s["dur"]) for s in spans[1:]] == [("a", 0.0, 2.0), ("b", 2.0, 3.0)]
