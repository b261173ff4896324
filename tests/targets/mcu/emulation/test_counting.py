"""Instructions counted in QEMU, step by step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelcc.targets.mcu.emulation.boards import missing_tools
from modelcc.targets.mcu.emulation.build import build, write_files
from modelcc.targets.mcu.emulation.counting import build_plugin
from modelcc.targets.mcu.emulation.program import board_files
from modelcc.targets.mcu.emulation.run import run
from modelcc.targets.mcu.machine import MODELS
from modelcc.targets.mcu.timing import instructions
from tests.embedded import embedded, keyword_spotter

EMPTY_LOOP = """
#include "board.h"
int main(void)
{
    measured_begin();
    __asm__ volatile("mcc_step_0_1: movs r0, #100\\n 1: subs r0, #1\\n bne 1b" ::: "r0", "cc");
    __asm__ volatile("mcc_step_1_2: nop\\n nop\\n push {r4-r6}\\n pop {r4-r6}" ::: "memory");
    measured_end();
    return 0;
}
"""


def tools() -> None:
    if missing := missing_tools(MODELS["cortex-m4"]):
        pytest.skip(missing)


def test_counts_are_exact(tmp_path: Path) -> None:
    tools()
    (tmp_path / "main.c").write_text(EMPTY_LOOP)
    counts = run(build(tmp_path, "loop", MODELS["cortex-m4"]), {}, True).counts
    if counts is None:
        pytest.skip("there is no compiler for this machine")
    assert counts.steps[0] == {"plain": 201, "taken": 99}
    assert {k: n for k, n in counts.steps[1].items() if k in ("several", "registers")} == {
        "several": 2, "registers": 6,
    }  # fmt: skip
    assert counts.kinds["taken"] >= 99
    assert counts.functions["main"] >= 205


def test_steps_of_a_model(tmp_path: Path) -> None:
    tools()
    if build_plugin("qemu-system-arm", tmp_path) is None:
        pytest.skip("there is no compiler for this machine")
    model = embedded(keyword_spotter(), "cortex-m4")
    write_files(board_files(model), tmp_path)
    x = np.zeros((1, 1, 9, 5), np.int8).tobytes()
    measured = run(build(tmp_path, "net", model.machine), {"x": x}, True)
    assert measured.counts is not None
    by_step = {step: instructions(kinds) for step, kinds in measured.counts.steps.items()}
    assert sorted(by_step) == [-1, *range(len(model.program.steps) + 1)]
    assert sum(by_step.values()) == measured.total
    convolutions = [n for n, step in enumerate(model.program.steps) if "Conv" in str(step)]
    least = 8 * 8 * 9 * 5 // 2  # products, two of which are one instruction
    assert len(convolutions) >= 5 and all(by_step[n] > least for n in convolutions)
