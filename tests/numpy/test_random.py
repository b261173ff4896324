"""Random numbers: bits that were published and those of JAX, distributions, keys."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from modelcc.ir.errors import ModelError
from modelcc.numpy import random
from modelcc.numpy.random import threefry
from modelcc.tensor.evaluation import evaluate
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.tracing import jit

KNOWN = (
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
)
"""Key, count and words: known answers of the authors' Random123."""


def words(pair: tuple[int, int]) -> Tensor:
    return Tensor(np.array(pair, np.uint32))


def test_known_answers() -> None:
    for key, count, expected in KNOWN:
        found = threefry(words(key), *words(count))
        assert tuple(x.item() for x in found) == expected


def test_a_key_gives_the_same_numbers_always_and_another_one_others() -> None:
    key = random.key(7)
    first, other = random.split(key)
    drawn = [random.uniform(k, (100,)) for k in (key, key, first, other)]
    evaluate(drawn)
    a, b, c, d = (x.numpy() for x in drawn)
    np.testing.assert_array_equal(a, b)
    assert len({a[0].item(), c[0].item(), d[0].item()}) == 3
    traced = jit(lambda k: random.uniform(k, (100,)))(key)
    np.testing.assert_array_equal(traced.numpy(), a)


def test_distributions() -> None:
    """Means and deviations of 40000 numbers, within four standard errors and a little more."""
    key, n = random.key(1), 40000
    drawn: dict[str, tuple[Tensor, float, float]] = {
        "uniform": (random.uniform(key, (n,), minval=-1, maxval=3), 1.0, 4 / 12**0.5),
        "normal": (random.normal(key, (n,)), 0.0, 1.0),
        "exponential": (random.exponential(key, (n,)), 1.0, 1.0),
        "gumbel": (random.gumbel(key, (n,)), 0.5772, np.pi / 6**0.5),
        "randint": (random.randint(key, (n,), -2, 9), 3.0, (120 / 12) ** 0.5),
        "bernoulli": (random.bernoulli(key, 0.3, (n,)), 0.3, 0.21**0.5),
    }
    evaluate([x for x, _, _ in drawn.values()])
    for name, (x, mean, deviation) in drawn.items():
        values = x.numpy().astype(np.float64)
        assert abs(values.mean() - mean) < 4.5 * deviation / n**0.5, name
        assert abs(values.std() / deviation - 1) < 0.03, name


def test_ranges() -> None:
    key = random.key(3)
    cut = random.truncated_normal(key, -1.0, 0.5, (5000,))
    whole = random.randint(key, (5000,), 3, 6)
    evaluate([cut, whole])
    assert -1 < cut.numpy().min() < -0.95
    assert 0.45 < cut.numpy().max() < 0.5
    assert set(whole.tolist()) == {3, 4, 5}


def test_choices() -> None:
    key = random.key(4)
    order = random.permutation(key, 20)
    rows = random.permutation(key, np.arange(6).reshape(3, 2))
    some = random.choice(key, np.arange(10) * 10, (4,), replace=False)
    likely = random.categorical(key, np.log(np.array([0.01, 0.9, 0.09])), shape=(3000,))
    evaluate([order, rows, some, likely])
    assert sorted(order.tolist()) == list(range(20)) != order.tolist()
    assert sorted(rows.tolist()) == [[0, 1], [2, 3], [4, 5]]
    assert len(set(some.tolist())) == 4
    shares = np.bincount(likely.numpy(), minlength=3) / 3000
    np.testing.assert_allclose(shares, [0.01, 0.9, 0.09], atol=0.03)


def test_what_is_no_key_is_refused() -> None:
    with pytest.raises(ModelError, match=r"is no key of random numbers\n.*random\.key"):
        random.uniform(Tensor([1.0, 2.0]), (3,))
    with pytest.raises(ModelError, match="random numbers of type i32"):
        random.uniform(random.key(0), (3,), "i32")


@pytest.fixture
def jax() -> Iterator[Any]:
    """With types of 32 bits by default, whatever other tests have set."""
    pytest.importorskip("jax")
    module: Any = import_module("jax")
    before = module.config.jax_enable_x64
    module.config.update("jax_enable_x64", False)
    yield module
    module.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("seed", [0, 2**40 + 3])
def test_bits_are_those_of_jax(seed: int, jax: Any) -> None:
    key, their = random.key(seed), jax.random.PRNGKey(seed % 2**32)
    if seed >= 2**32:
        their = jax.numpy.array([seed >> 32, seed % 2**32], "uint32")
    pairs = [
        (random.split(key, 3), jax.random.split(their, 3)),
        (random.fold_in(key, 7), jax.random.fold_in(their, 7)),
        (random.bits(key, (3, 5)), jax.random.bits(their, (3, 5))),
        (random.bits(key, (3, 5), "u8"), jax.random.bits(their, (3, 5), "uint8")),
        (
            random.uniform(key, (300,), "f32", -2, 3),
            jax.random.uniform(their, (300,), "float32", -2, 3),
        ),
        (random.uniform(key, (300,), "bf16"), jax.random.uniform(their, (300,), "bfloat16")),
        (random.uniform(key, (300,), "f16"), jax.random.uniform(their, (300,), "float16")),
        (random.randint(key, (300,), -5, 17), jax.random.randint(their, (300,), -5, 17)),
        (random.bernoulli(key, 0.3, (99,)), jax.random.bernoulli(their, 0.3, (99,))),
        (random.permutation(key, 100), jax.random.permutation(their, 100)),
    ]  # fmt: skip
    evaluate([ours for ours, _ in pairs])
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours.numpy(), np.asarray(theirs))
    near = [
        (random.normal(key, (999,)), jax.random.normal(their, (999,))),
        (random.gumbel(key, (999,)), jax.random.gumbel(their, (999,))),
    ]
    for ours, theirs in near:
        np.testing.assert_allclose(ours.numpy(), np.asarray(theirs), 2e-5, 1e-6)
