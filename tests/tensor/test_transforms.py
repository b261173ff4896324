"""vjp, jvp, Jacobians, Hessians, and memory that is let go."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc import ModelError, Tensor
from modelcc.ir.types import Array
from modelcc.ops.transcendental import Sin
from modelcc.tensor.lazy import FREE, RECORDED
from tests.tensor.differences import differences, total


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(0.2, 1, shape)


def sin(x: Tensor) -> Tensor:
    return x.result(Sin(), x)


def pair(x: Tensor, w: Tensor) -> dict[str, Tensor]:
    """Results of two shapes."""
    y = sin(x @ w)
    return {"y": y * y, "s": total(x) * total(w)}


def test_vjp_is_the_transposed_jacobian() -> None:
    x, w = array(2, 3), array(3, 2, seed=1)
    weights = {"y": Tensor(array(2, 2, seed=2)), "s": Tensor(np.float64(0.3))}

    def weighted(x: Tensor, w: Tensor) -> Tensor:
        found = pair(x, w)
        return total(found["y"] * weights["y"]) + found["s"] * weights["s"]

    result, pullback = modelcc.vjp(pair, Tensor(x), Tensor(w))
    np.testing.assert_allclose(result["y"], np.sin(x @ w) ** 2, rtol=1e-12)
    for _ in range(2):  # a pullback may be called again
        dx, dw = pullback(weights)
        np.testing.assert_allclose(dx, differences(lambda v: weighted(v, Tensor(w)), x), rtol=1e-6)
        np.testing.assert_allclose(dw, differences(lambda v: weighted(Tensor(x), v), w), rtol=1e-6)


def test_vjp_with_aux() -> None:
    result, pullback, aux = modelcc.vjp(lambda x: (x * x, x + 1), Tensor(3.0), has_aux=True)
    assert (float(result), float(aux), float(pullback(1.0)[0])) == (9, 4, 6)


def test_a_cotangent_is_like_the_result() -> None:
    _, pullback = modelcc.vjp(lambda x: x * 2, Tensor([1.0, 2.0]))
    with pytest.raises(ModelError, match=r"like what it belongs to \(output: f32\[2\]\)"):
        pullback(Tensor([1.0, 2.0, 3.0]))


@pytest.mark.parametrize("compiled", [False, True])
def test_jvp_is_the_jacobian_times_a_tangent(compiled: bool) -> None:
    x, w = array(2, 3), array(3, 2, seed=1)
    dx, dw = array(2, 3, seed=2), array(3, 2, seed=3)

    def forwards(x: Tensor, w: Tensor, dx: Tensor, dw: Tensor) -> Any:
        return modelcc.jvp(pair, (x, w), (dx, dw))

    run = modelcc.jit(forwards) if compiled else forwards
    result, tangent = run(*map(Tensor, (x, w, dx, dw)))
    step = 1e-6
    high, low = (pair(Tensor(x + s * dx), Tensor(w + s * dw)) for s in (step, -step))
    for name in ("y", "s"):
        expected = (high[name].numpy() - low[name].numpy()) / (2 * step)
        np.testing.assert_allclose(tangent[name], expected, rtol=1e-7)
        np.testing.assert_allclose(result[name], pair(Tensor(x), Tensor(w))[name], rtol=1e-12)


def test_jvp_of_what_does_not_depend_on_it() -> None:
    result, tangent = modelcc.jvp(lambda x: (x * 2, Tensor([1.0])), [Tensor(3.0)], [1.0])
    assert (float(result[0]), float(tangent[0]), tangent[1].tolist()) == (6, 2, [0])


@pytest.mark.parametrize("compiled", [False, True])
def test_jacobians_have_the_shapes_of_both(compiled: bool) -> None:
    x = array(3)

    def function(x: Tensor) -> Tensor:
        return sin(x * x) * total(x)

    jacobian = modelcc.jacobian(function)
    found = (modelcc.jit(jacobian) if compiled else jacobian)(Tensor(x))
    rows = [differences(lambda v, i=i: function(v).numpy()[i], x) for i in range(3)]
    np.testing.assert_allclose(found, np.array(rows), rtol=1e-6)


def test_jacobians_of_trees() -> None:
    found = modelcc.jacobian(lambda p: {"sum": p["a"] + p["b"]})(
        {"a": Tensor([1.0, 2.0]), "b": Tensor(3.0)}
    )
    assert found["sum"]["a"].tolist() == [[1, 0], [0, 1]]
    assert found["sum"]["b"].tolist() == [1, 1]


@pytest.mark.parametrize("compiled", [False, True])
def test_hessians(compiled: bool) -> None:
    x = array(3)

    def function(x: Tensor) -> Tensor:
        return total(sin(x)) * total(x * x)

    hessian = modelcc.hessian(function)
    found = (modelcc.jit(hessian) if compiled else hessian)(Tensor(x))
    s, c = np.sin(x), np.cos(x)
    expected = np.diag(-s * (x @ x)) + 2 * np.outer(c, x) + 2 * np.outer(x, c)
    expected += 2 * np.eye(3) * s.sum()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_transforms_agree_with_those_of_jax() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    x = array(4).astype(np.float32)

    def ours(v: Tensor) -> Tensor:
        return modelcc.scan(lambda c, e: (sin(c * e) + e,) * 2, total(v), v)[0]

    def theirs(v: Any) -> Any:
        def body(c: Any, e: Any) -> tuple[Any, Any]:
            c = jnp.sin(c * e) + e
            return c, c

        return jax.lax.scan(body, jnp.sum(v), v)[0]

    np.testing.assert_allclose(modelcc.grad(ours)(Tensor(x)), jax.grad(theirs)(x), rtol=1e-5)
    np.testing.assert_allclose(modelcc.hessian(ours)(Tensor(x)), jax.hessian(theirs)(x), rtol=1e-4)
    tangent = np.ones(4, np.float32)
    forward = modelcc.jvp(ours, (Tensor(x),), (Tensor(tangent),))[1]
    np.testing.assert_allclose(forward, jax.jvp(theirs, (x,), (tangent,))[1], rtol=1e-5)


# What is compiled, and where gradients are taken


def test_gradients_in_compiled_functions_and_compiled_functions_in_gradients() -> None:
    x = array(3)

    def function(x: Tensor) -> Tensor:
        return total(sin(x) * x)

    expected = differences(function, x)
    for gradient in (
        modelcc.jit(modelcc.grad(function)),
        modelcc.grad(modelcc.jit(function)),
        modelcc.jit(modelcc.grad(modelcc.jit(function))),
    ):
        np.testing.assert_allclose(gradient(Tensor(x)), expected, rtol=1e-6)


def test_static_arguments_are_numbers_of_python() -> None:
    seen: list[int] = []

    @modelcc.jit(static=("n",))
    def power(x: Tensor, n: int) -> Tensor:
        seen.append(n)
        y = x
        for _ in range(n - 1):
            y = y * x
        return y

    assert float(power(Tensor(2.0), 3)) == 8
    assert float(power(Tensor(3.0), n=3)) == 27
    assert float(power(Tensor(2.0), 2)) == 4
    assert float(power(Tensor(3.0), 2)) == 9
    assert sorted(set(seen)) == [2, 3]
    assert float(modelcc.grad(power)(Tensor(2.0), 3)) == 12
    with pytest.raises(ModelError, match="static argument 'n' is a list"):
        power(Tensor(2.0), [3])


def test_named_dimensions_serve_all_sizes() -> None:
    @modelcc.jit(shapes={"x": ("batch", 3)})
    def scores(x: Tensor, w: Tensor) -> Tensor:
        return sin(x @ w)

    w = array(3, 2)
    for size in (1, 4, 7):
        x = array(size, 3, seed=size)
        np.testing.assert_allclose(scores(Tensor(x), Tensor(w)), np.sin(x @ w), rtol=1e-9)
    assert len(scores.models) == 1
    with pytest.raises(ModelError, match=r"'x' is declared \[batch, 3\], and given as f64\[2, 4\]"):
        scores(Tensor(array(2, 4)), Tensor(w))


def test_gradients_with_named_dimensions() -> None:
    @modelcc.jit(shapes={"x": ("batch", 3)})
    def slope(w: Tensor, x: Tensor) -> Tensor:
        return modelcc.grad(lambda w: total(sin(x @ w)))(w)

    w = array(3, 2)
    for size in (2, 5):
        x = array(size, 3, seed=size)
        expected = x.T @ np.cos(x @ w)
        np.testing.assert_allclose(slope(Tensor(w), Tensor(x)), expected, rtol=1e-9)
    assert len(slope.models) == 1


# Memory


def test_what_a_gradient_has_recorded_is_let_go() -> None:
    inside: list[weakref.ref[Tensor]] = []

    def loss(x: Tensor) -> tuple[Tensor, Tensor]:
        y = sin(x)
        inside.append(weakref.ref(y))
        y.numpy()
        return total(y * y), y * 2

    (value, aux), slope = modelcc.value_and_grad(loss, has_aux=True)(Tensor(array(3)))
    assert inside[0]() is not None
    for tensor in (slope, value, aux):
        tensor.numpy()
    gc.collect()
    assert inside[0]() is None
    assert {value.phase, aux.phase, slope.phase} == {FREE}
    assert value.op is aux.op is slope.op is None


def test_nested_gradients_keep_what_outer_ones_need() -> None:
    phases: list[int] = []

    def slope(x: Tensor) -> Tensor:
        found = modelcc.grad(lambda v: total(v * v * v))(x)
        phases.append(found.phase)
        return total(found)

    second = modelcc.grad(slope)(Tensor(array(3)))
    assert phases == [RECORDED]
    assert second.phase == FREE
    np.testing.assert_allclose(second, 6 * array(3), rtol=1e-12)


def test_steps_do_not_keep_each_other() -> None:
    ends: list[weakref.ref[Tensor]] = []
    x = Tensor(array(3))
    for _ in range(3):
        value, slope = modelcc.value_and_grad(lambda v: total(sin(v)))(x)
        ends.append(weakref.ref(value))
        x = x - 0.1 * slope
        x.numpy()
        del value, slope
    gc.collect()
    assert [end() for end in ends] == [None] * 3


def test_a_pullback_keeps_what_it_needs_and_no_longer() -> None:
    inside: list[weakref.ref[Tensor]] = []

    def function(x: Tensor) -> Tensor:
        y = sin(x)
        inside.append(weakref.ref(y))
        return y * y

    result, pullback = modelcc.vjp(function, Tensor(array(3)))
    result.numpy()
    assert inside[0]() is not None
    slope = pullback(Tensor(np.ones(3)))[0]
    del pullback
    np.testing.assert_allclose(slope, np.sin(2 * array(3)), rtol=1e-9)
    gc.collect()
    assert inside[0]() is None


def test_a_pullback_of_a_gradient_that_has_ended_is_refused() -> None:
    kept: list[Any] = []

    def function(x: Tensor) -> Tensor:
        y, pullback = modelcc.vjp(sin, x)
        kept.append(pullback)
        return total(y * pullback(Tensor(np.ones(3)))[0])

    x = array(3)
    np.testing.assert_allclose(modelcc.grad(function)(Tensor(x)), np.cos(2 * x), rtol=1e-9)
    with pytest.raises(ModelError, match="made while a gradient was taken"):
        kept[0](Tensor(np.ones(3)))
