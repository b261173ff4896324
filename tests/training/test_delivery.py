"""Training steps delivered as C learn what the compiled step learns, bit by bit."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np

from modelcc import nn, optim
from modelcc.targets.c.dialect import GNU
from modelcc.targets.c.toolchain import semantics
from modelcc.training import TrainStep
from tests.delivered import COMPILERS, WARNINGS, needs_compiler, run

pytestmark = needs_compiler
MARCH = ("-march=x86-64",) if platform.machine() == "x86_64" else ()

PROGRAM = """
#include <stdio.h>
#include "learn.h"

LEARN_DEFINE_ARENA(scratch);
LEARN_DEFINE_STATES(states);

static float x[LEARN_INPUT_batch_0_ELEMENTS];
static int64_t y[LEARN_INPUT_batch_1_ELEMENTS];

int main(void)
{
    float loss[1];
    const learn_inputs in = {x, y};
    learn_outputs out = {loss};
    if (learn_states_reset(&states, learn_weights()) != LEARN_OK) return 1;
    for (int step = 0; step < 4; step++) {
        if (fread(x, sizeof x, 1, stdin) + fread(y, sizeof y, 1, stdin) != 2) return 2;
        if (learn_run(&in, &out, learn_weights(), &states, scratch, sizeof scratch) != LEARN_OK)
            return 3;
        fwrite(loss, sizeof loss, 1, stdout);
    }
    return 0;
}
"""


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, rng=0), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3, rng=1)
    )


def loss(model: Any, x: Any, y: Any) -> Any:
    return nn.functional.cross_entropy(model(x), y)


def batches() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(2)
    return [
        (rng.normal(size=(4, 1, 8, 8)).astype(np.float32), rng.integers(0, 3, 4)) for _ in range(4)
    ]


def test_losses_are_those_of_the_session_and_nothing_is_allocated(tmp_path: Path) -> None:
    rule = optim.SGD(0.1, momentum=0.9)
    step = TrainStep(network(), loss, rule, target="c", cpu="portable", threads=1)
    data = batches()
    delivery = step.deliver(tmp_path, *data[0], name="learn")
    (tmp_path / "main.c").write_text(PROGRAM)
    sources = sorted(path.name for path in tmp_path.glob("*.c"))
    flags = [*semantics(GNU), "-O2", *MARCH, *WARNINGS]
    run([COMPILERS[0].split()[0], *flags, *sources, "-o", "own", "-lm"], tmp_path)
    assert "alloc" not in run(["nm", "own"], tmp_path)
    (tmp_path / "in.bin").write_bytes(b"".join(a.tobytes() for pair in data for a in pair))
    run(["sh", "-c", "./own < in.bin > out.bin"], tmp_path)
    found = np.fromfile(tmp_path / "out.bin", np.float32)
    wanted = np.array([step(*pair)["loss"] for pair in data])
    np.testing.assert_array_equal(found, wanted)
    parameters = 4 * (4 * 9 + 4 + 3 * 36 + 3)
    assert delivery.states == 2 * parameters + 8  # moments, and the number of the step


def test_frozen_layers_are_weights_and_take_no_states(tmp_path: Path) -> None:
    model = network()
    model.freeze("0")
    step = TrainStep(model, loss, optim.SGD(0.1, momentum=0.9), threads=1)
    delivery = step.deliver(tmp_path, *batches()[0], name="learn")
    assert delivery.states == 2 * 4 * (3 * 36 + 3) + 8
    assert "model.0.weight" not in (tmp_path / "learn.h").read_text()
