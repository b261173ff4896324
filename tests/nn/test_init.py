"""Initial values: bounds and moments of the distributions, and what seeds do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from modelcc import ModelError, Tensor, nn
from modelcc.nn import init

SHAPE = (200, 300)


def moments(tensor: Tensor) -> tuple[float, float]:
    return float(tensor.numpy().mean()), float(tensor.numpy().std())


@pytest.mark.parametrize(
    ("tensor", "deviation"),
    [
        (init.uniform(SHAPE, -1, 3, rng=0), 4 / math.sqrt(12)),
        (init.normal(SHAPE, 1, 0.5, rng=0), 0.5),
        (init.xavier_uniform(SHAPE, rng=0), math.sqrt(2 / 500)),
        (init.xavier_normal(SHAPE, 2.0, rng=0), 2 * math.sqrt(2 / 500)),
        (init.kaiming_uniform(SHAPE, nonlinearity="relu", rng=0), math.sqrt(2 / 300)),
        (init.kaiming_normal(SHAPE, mode="fan_out", rng=0), math.sqrt(2 / 1.0001 / 200)),
        (init.trunc_normal(SHAPE, rng=0), 0.8796),  # of a normal number within two deviations
    ],
)
def test_deviations(tensor: Tensor, deviation: float) -> None:
    assert moments(tensor)[1] == pytest.approx(deviation, rel=0.02)


def test_bounds() -> None:
    drawn = init.trunc_normal(SHAPE, 0.5, 2.0, -1.0, 2.0, rng=0).numpy()
    assert drawn.min() >= -1 and drawn.max() <= 2
    assert np.abs(init.xavier_uniform(SHAPE, rng=0).numpy()).max() <= math.sqrt(6 / 500)
    with pytest.raises(ModelError, match="hardly anything"):
        init.trunc_normal((2,), 0, 1, 8, 9)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    flat = init.orthogonal(shape, 2.0, rng=0, dtype="f64").numpy().reshape(shape[0], -1)
    small = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-12)


def test_dirac_hands_channels_on() -> None:
    layer = nn.Conv2d(2, 3, 3, padding=1, bias=False)
    layer.weight = init.dirac((3, 2, 3, 3))
    x = np.random.default_rng(0).normal(size=(1, 2, 4, 4)).astype(np.float32)
    np.testing.assert_allclose(layer(x).numpy()[:, :2], x, rtol=1e-6)
    assert (layer(x).numpy()[:, 2] == 0).all()


def test_sparse_and_constants() -> None:
    assert (init.sparse((10, 4), 0.3, rng=0).numpy() == 0).sum(0).tolist() == [3] * 4
    assert init.eye((2, 3)).numpy().tolist() == [[1, 0, 0], [0, 1, 0]]
    assert init.constant((2,), 3.0, "f64").dtype.name == "f64"
    assert init.zeros((2,)).tolist() == [0, 0] and init.ones((2,)).tolist() == [1, 1]


def test_a_seed_gives_the_same_and_none_another() -> None:
    one, other = (nn.Linear(3, 4, rng=5).weight.numpy() for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert (nn.Linear(3, 4).weight.numpy() != nn.Linear(3, 4).weight.numpy()).any()
    rng = np.random.default_rng(5)
    assert (nn.Linear(3, 4, rng=rng).weight.numpy() == one).all()
    assert (nn.Linear(3, 4, rng=rng).weight.numpy() != one).any()


def test_gains() -> None:
    assert init.calculate_gain("tanh") == 5 / 3
    assert init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)
    with pytest.raises(ModelError, match="no gain for 'sine'"):
        init.calculate_gain("sine")
    with pytest.raises(ModelError, match="at least 2 axes"):
        init.xavier_uniform((3,))
