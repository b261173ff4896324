"""A network of two layers learns handwritten digits; the example has a convolutional one."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

from modelcc import nn

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits.py"


def test_digits_are_learned() -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(0)
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128, rng=rng),
        nn.ReLU(),
        nn.Dropout(0.2, rng=rng),
        nn.Linear(128, 10, rng=rng),
    )
    trainer = runpy.run_path(str(EXAMPLE))["trainer_of"](model, None, epochs=30, seed=0, threads=1)
    trainer.fit()
    assert trainer.evaluate(trainer.validation)["accuracy"] >= 0.97
