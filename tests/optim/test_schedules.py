"""Learning rates against torch's schedulers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc import ModelError, Tensor, optim

STEPS = 24


def rates(schedule: Callable[[Tensor], Tensor]) -> list[float]:
    compiled = modelcc.jit(schedule)
    return [float(compiled(Tensor(step))) for step in range(STEPS)]


CASES: dict[str, tuple[Callable[[Tensor], Tensor], str, dict[str, Any]]] = {
    "step": (optim.StepDecay(0.5, 5), "StepLR", {"step_size": 5}),
    "exponential": (optim.Exponential(0.5, 0.9), "ExponentialLR", {"gamma": 0.9}),
    "cosine": (optim.Cosine(0.5, 30, 0.1), "CosineAnnealingLR", {"T_max": 30, "eta_min": 0.1}),
    "polynomial": (
        optim.Polynomial(0.5, 18, 2.0),
        "PolynomialLR",
        {"total_iters": 18, "power": 2.0},
    ),
    "warmup": (
        optim.Warmup(0.5, 5, 0.25),
        "LinearLR",
        {"start_factor": 0.25, "total_iters": 5},
    ),
    "one cycle": (optim.OneCycle(0.5, 24), "OneCycleLR", {"max_lr": 0.5, "total_steps": 24}),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_rates_are_those_of_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    schedule, kind, arguments = CASES[name]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    theirs = getattr(torch.optim.lr_scheduler, kind)(optimizer, **arguments)
    wanted: list[float] = []
    for step in range(STEPS):
        wanted.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step < STEPS - 1:
            theirs.step()
    np.testing.assert_allclose(rates(schedule), wanted, 1e-10)


def test_rates_by_pieces_and_constants() -> None:
    found = rates(optim.Piecewise((3, 10), (0.5, 0.25, 0.125)))
    assert found == [0.5] * 3 + [0.25] * 7 + [0.125] * (STEPS - 10)
    assert rates(optim.Constant(0.3)) == [0.3] * STEPS


def test_a_schedule_starts_after_its_warmup() -> None:
    found = rates(optim.Warmup(optim.Cosine(0.5, 10), 4))
    plain = rates(optim.Cosine(0.5, 10))
    np.testing.assert_allclose(found[:4], [0.0, 0.125, 0.25, 0.375])
    np.testing.assert_allclose(found[4:], plain[: STEPS - 4], atol=1e-12)
    assert plain[10:] == [0.0] * (STEPS - 10)


def test_pieces_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ModelError, match="2 rates for 2 boundaries"):
        optim.Piecewise((3, 10), (0.5, 0.25))
    with pytest.raises(ModelError, match="in order"):
        optim.Piecewise((10, 3), (0.5, 0.25, 0.1))
