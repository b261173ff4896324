"""Mean and variance beside NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ops.moments import Moments


@pytest.mark.parametrize("axes", [(0,), (0, 2), (0, 1, 2), ()])
def test_moments_are_those_of_numpy(axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(3, 2, (4, 3, 5))
    mean, var = Moments(axes).reference(x)
    np.testing.assert_allclose(mean, x.mean(axes, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(var, x.var(axes, keepdims=True), rtol=1e-12)


def test_nothing_cancels() -> None:
    x = np.array([[10000, 10001, 10002]], np.float32)
    np.testing.assert_allclose(Moments((1,)).reference(x)[1], [[2 / 3]], rtol=1e-6)
