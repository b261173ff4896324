"""Gradients that stop, that are told, and whose forward pass is computed again."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc import ModelError, Tensor
from modelcc.ir.types import Array
from modelcc.ops.differentiation import After, Checkpoint
from modelcc.ops.shape import Transpose
from modelcc.ops.transcendental import Sin
from tests.tensor.differences import differences, total


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0.2, 1, shape)


def sin(x: Tensor) -> Tensor:
    return x.result(Sin(), x)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_stopped_value_is_a_constant(compiled: bool) -> None:
    gradient = modelcc.grad(lambda x: total(modelcc.stop_gradient(x * x) * x))
    found = (modelcc.jit(gradient) if compiled else gradient)(Tensor(array(3)))
    np.testing.assert_allclose(found, array(3) ** 2, rtol=1e-12)


def clip_backward(x: Tensor, dy: Tensor) -> tuple[Tensor]:
    """Gradients of at most 1/2."""
    return (dy * (dy * dy < 0.25) + 0 * x,)


limited = modelcc.custom_gradient(lambda x: (x * 3, x), clip_backward)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_rule_of_ones_own(compiled: bool) -> None:
    weights = np.array([0.1, 0.4, 2.0])
    gradient = modelcc.grad(lambda x: total(limited(x) * Tensor(weights)))
    found = (modelcc.jit(gradient) if compiled else gradient)(Tensor(array(3)))
    assert found.tolist() == [0.1, 0.4, 0]
    np.testing.assert_allclose(limited(Tensor(array(3))), 3 * array(3), rtol=1e-12)


def test_a_rule_in_a_loop() -> None:
    def loss(x: Tensor) -> Tensor:
        return modelcc.fori_loop(0, 3, lambda _, s: limited(s), x)

    assert float(modelcc.grad(loss)(Tensor(0.2))) == 0  # 1 is above 1/2
    assert float(modelcc.grad(lambda x: loss(x) * 0.3)(Tensor(0.2))) == pytest.approx(0.3)


def test_second_gradients_go_through_what_is_kept() -> None:
    """The rule of a cube; its gradient is that of ``3 x²``, where x² is what was kept."""
    cube = modelcc.custom_gradient(lambda x: (x * x * x, x * x), lambda kept, dy: (3 * kept * dy,))
    x = Tensor(np.float64(0.7))
    for transform in (lambda f: f, modelcc.jit):
        slope = transform(modelcc.grad(cube))(x)
        second = transform(modelcc.grad(modelcc.grad(cube)))(x)
        assert float(slope) == pytest.approx(3 * 0.49)
        assert float(second) == pytest.approx(6 * 0.7)


def test_rules_of_trees() -> None:
    def forward(p: dict[str, Tensor], n: Tensor) -> tuple[tuple[Tensor, Tensor], Tensor]:
        return (p["a"] * p["b"], n + 1), p["b"]

    def backward(b: Tensor, dy: tuple[Tensor, None]) -> tuple[dict[str, Tensor | None], None]:
        assert dy[1] is None
        return {"a": 10 * b * dy[0], "b": None}, None

    rule = modelcc.custom_gradient(forward, backward)
    p = {"a": Tensor(2.0), "b": Tensor(3.0)}
    found = modelcc.grad(lambda p: rule(p, Tensor(4))[0])(p)
    assert (float(found["a"]), float(found["b"])) == (30, 0)


def test_a_rule_does_not_fit() -> None:
    wide = modelcc.custom_gradient(lambda x: (total(x), None), lambda _, dy: (dy,))
    with pytest.raises(ModelError, match=r"the gradient of f32\[2\] is f32\[\]"):
        modelcc.grad(wide)(Tensor([1.0, 2.0]))
    short = modelcc.custom_gradient(lambda x, y: (x * y, None), lambda _, dy: (dy,))
    with pytest.raises(ModelError, match="2 arguments must be a tuple of as many"):
        modelcc.grad(short)(Tensor(1.0), Tensor(2.0))


# Checkpoints


def network(x: Tensor, ws: list[Tensor], wrap: bool) -> Tensor:
    """Layers, each of whose inside is three times as large as its ends."""

    def layer(x: Tensor, w: Tensor) -> Tensor:
        h = x @ w
        return (h * h * h) @ w.result(Transpose((1, 0)), w)

    step = modelcc.checkpoint(layer) if wrap else layer
    for w in ws:
        x = step(x, w)
    return total(x)


def test_checkpoints_change_no_gradient() -> None:
    x, ws = array(4, 3), [Tensor(array(3, 6, seed=i)) for i in range(3)]
    results: list[list[Array]] = []
    for wrap in (False, True):
        gradient: Any = modelcc.grad(partial(network, wrap=wrap), (0, 1))
        for run in (gradient, modelcc.jit(gradient)):
            dx, dws = run(Tensor(x), ws)
            results.append([dx.numpy(), *(d.numpy() for d in dws)])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_second_gradients_of_checkpoints() -> None:
    function = modelcc.checkpoint(lambda v: total(sin(v) * v))

    def slope(v: Tensor) -> Tensor:
        return total(modelcc.grad(function)(v) * v)

    x = array(3)
    expected = differences(slope, x)
    np.testing.assert_allclose(modelcc.grad(slope)(Tensor(x)), expected, rtol=1e-6)


def test_checkpoints_take_less_memory() -> None:
    ws = [Tensor(array(32, 256, seed=i).astype(np.float32)) for i in range(4)]
    x = Tensor(array(64, 32).astype(np.float32) / 100)
    peaks: list[int] = []
    for wrap in (False, True):
        gradient: Any = modelcc.grad(partial(network, wrap=wrap), 1)
        graph = modelcc.trace(gradient, x, ws)
        kinds = {type(n.op) for n in graph.graph.nodes}
        assert (Checkpoint in kinds) == (After in kinds) == wrap
        peaks.append(graph.compile().report().arena)
    inside = 64 * 256 * 4
    assert peaks[0] - peaks[1] > 2 * inside  # of four layers, one is there at a time
