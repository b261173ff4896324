"""Models that learn handwritten digits."""

from __future__ import annotations

import pytest

from modelcc import nn
from tests.training.digits import cnn, mlp, trained


@pytest.mark.parametrize(
    ("make", "rate", "epochs", "least"), [(mlp, 3e-3, 30, 0.97), (cnn, 3e-3, 10, 0.985)]
)
def test_digits_are_learned(make: type[nn.Module], rate: float, epochs: int, least: float) -> None:
    pytest.importorskip("sklearn")
    trainer = trained(make(0), rate, epochs)
    assert trainer.evaluate(trainer.validation)["accuracy"] >= least
