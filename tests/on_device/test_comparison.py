"""Forms of a model are run, and what differs is found."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.on_device.board_run import any_inputs, input_types
from modelcc.on_device.comparison import first_difference, run_forms
from modelcc.on_device.forms import BYTECODE, LIBRARIES, WEIGHTS, forms_of
from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.machine import MODELS
from tests.embedded import embedded, keyword_spotter, leaky_sum, needs_compiler


def test_on_a_board() -> None:
    if missing := missing_tools(MODELS["cortex-m4"]):
        pytest.skip(missing)
    model = embedded(keyword_spotter(), "cortex-m4")
    forms, refused = forms_of(model)
    assert not refused
    first, *others = run_forms(model, forms, any_inputs(input_types(model), 1))
    weights = sum(one.bytes for one in model.arrays if one.is_weight)
    for other in others:
        assert first_difference(other.outputs, first.outputs) is None
    assert others[-1].name == "bytecode" and others[-1].update == others[-1].flash[BYTECODE]
    assert first.flash[WEIGHTS] == weights
    assert first.update == sum(first.flash.values()) > weights + first.flash.get(LIBRARIES, 0)
    assert first.stack and first.ram == model.arena + first.stack
    assert first.instructions is None or (first.cycles and first.cycles > first.instructions)


@needs_compiler
def test_on_this_machine() -> None:
    model = embedded(leaky_sum(), "mcu")  # for which there is no emulator
    results = run_forms(model, forms_of(model)[0][:1], {"x": np.arange(6, dtype=np.float32)})
    assert results[0].place == "this machine" and results[0].instructions is None
    np.testing.assert_array_equal(results[0].outputs["twice"], np.arange(6) * 2 + 1)


def test_differences_are_counted() -> None:
    right = {"y": np.array([1, 2, 3], np.int8), "z": np.array([0.0], np.float32)}
    assert first_difference(right, right) is None
    assert first_difference({**right, "y": np.array([1, 0, 0], np.int8)}, right) == ("y", 2, 3)
    assert first_difference({**right, "z": np.array([-0.0], np.float32)}, right) == ("z", 1, 1)
