"""modelcc.jax: pytrees in and out, one model for each type of arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

import modelcc  # noqa: E402
import modelcc.jax  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
jnp = jax.numpy


def linear(parameters: Any, x: Any, *, scale: Any = 1.0) -> Any:
    return {"y": x @ parameters["w"] * scale, "w": (parameters["w"],)}


PARAMETERS = {"w": np.arange(6, dtype=np.float32).reshape(3, 2)}


def test_pytrees_keywords_and_arrays_of_jax() -> None:
    fast = modelcc.jax.jit(linear, cache=None)
    for x in (np.ones((2, 3), np.float32), jnp.ones((4, 3)), jnp.ones((4, 3))):
        found, wanted = fast(PARAMETERS, x, scale=2.0), linear(PARAMETERS, x, scale=2.0)
        assert jax.tree.structure(found) == jax.tree.structure(wanted)
        assert isinstance(found["y"], jax.Array)
        np.testing.assert_allclose(found["y"], wanted["y"])
    assert len(fast.models) == 2
    assert fast.__name__ == "linear"


def test_an_argument_that_is_not_used() -> None:
    fast = modelcc.jax.compile(lambda x, unused: x + 1, jnp.ones(3), {"a": 4}, cache=None)
    np.testing.assert_array_equal(fast(np.zeros(3, np.float32), {"a": 1}), np.ones(3))


def test_another_pytree_is_refused() -> None:
    fast = modelcc.jax.compile(linear, PARAMETERS, jnp.ones((1, 3)), cache=None)
    with pytest.raises(modelcc.InputError, match="pytree"):
        fast([1, 2], jnp.ones((1, 3)))


def test_random_keys_come_and_go() -> None:
    def drawn(key: Any, x: Any) -> Any:
        return jax.random.uniform(key, x.shape) + x, jax.random.split(key)

    fast = modelcc.jax.jit(drawn, cache=None, optimize=1)
    for key in (jax.random.key(3), jax.random.key(4, impl="rbg")):
        found, wanted = fast(key, jnp.ones(5)), drawn(key, jnp.ones(5))
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
        assert found[1].dtype == wanted[1].dtype
        data = [jax.random.key_data(keys) for _, keys in (found, wanted)]
        np.testing.assert_array_equal(*data)


def test_arguments_that_are_no_arrays() -> None:
    def rows(x: Any, count: int, *, mode: str = "same") -> Any:
        return x.reshape(count, -1) * (1 if mode == "same" else -1)

    fast = modelcc.jax.jit(rows, static_argnums=-1, static_argnames="mode", cache=None, optimize=1)
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(fast(x, 2), rows(x, 2))
    np.testing.assert_array_equal(fast(x, count=3, mode="less"), rows(x, 3, mode="less"))
    assert fast(x, 2).shape == (2, 3) and len(fast.models) == 2
    with pytest.raises(TypeError, match="unhashable"):
        fast(x, [2])


def test_parameters_are_named_as_for_jax() -> None:
    x = np.arange(4, dtype=np.float32)

    def powers(x: Any, *rest: Any, **named: Any) -> Any:
        return x ** rest[-1] * named["scale"]

    fast = modelcc.jax.jit(
        powers, static_argnums=-1, static_argnames="scale", donate_argnums=0, cache=None, optimize=1
    )
    np.testing.assert_allclose(fast(x, x, 2, scale=3), x**2 * 3)
    np.testing.assert_allclose(fast(x, 3, scale=1), x**3)
    with pytest.raises(ValueError, match="no argument 2"):
        modelcc.jax.jit(lambda x, y: x, static_argnums=2)
    with pytest.raises(ValueError, match="no parameter 'z'"):
        modelcc.jax.jit(lambda x, y: x, donate_argnames="z")


def test_arguments_that_would_lose_a_part_are_refused() -> None:
    fast = modelcc.jax.compile(lambda x: x + 1, np.arange(3, dtype=np.int32), cache=None)
    np.testing.assert_array_equal(fast(np.ones(3, bool)), [2, 2, 2])
    for given in (np.array([0.5, 1, 2]), np.ones(3, np.complex64), np.array(["a", "b", "c"])):
        with pytest.raises(modelcc.InputError, match="an array of int32, got one of"):
            fast(given)


def test_what_is_compiled_is_not_transformed() -> None:
    fast = modelcc.jax.jit(lambda x: (x * 2).sum(), cache=None, optimize=1)
    for transformed in (jax.grad(fast), jax.jit(fast), jax.vmap(fast)):
        with pytest.raises(modelcc.InputError, match="transform the function before"):
            transformed(np.ones((2, 3), np.float32))


def test_options_and_the_model() -> None:
    fast = modelcc.jax.compile(jnp.sin, np.ones(2, np.float32), threads=1, cache=None)
    assert fast.model.threads == 1
    assert fast.model.name == "sin"
