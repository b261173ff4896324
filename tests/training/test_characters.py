"""A transformer learns as it does in torch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from modelcc import optim, training
from tests.training.characters import Transformer, loss, texts, torch_loss

STEPS = 100
TEXT = (Path(__file__).parents[2] / "LICENSE").read_text("utf-8")[:8000]


def test_the_loss_of_a_transformer_follows_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    count, batches = texts(TEXT, 8, STEPS, 0)
    model = Transformer(count, 0)
    state = {n: torch.tensor(x.numpy(), requires_grad=True) for n, x in model.state_dict().items()}
    theirs = torch.optim.AdamW(state.values(), 3e-3)
    step = training.TrainStep(model, loss, optim.AdamW(3e-3), threads=1)
    found: list[float] = []
    wanted: list[float] = []
    for x, y in batches:
        theirs.zero_grad()
        value = torch_loss(torch, state, x, y)
        value.backward()
        theirs.step()
        wanted.append(value.item())
        found.append(float(step(x, y)["loss"]))
    assert wanted[-1] < 0.8 * wanted[0]
    np.testing.assert_allclose(found, wanted, 1e-4)
