"""Losses and similarities by NumPy's formulas, and their gradients by differences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc import Input, Tensor
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import Array
from modelcc.nn import functional as F  # noqa: N812
from modelcc.nn.functional.values import summed
from tests.nn.layer_cases import normal

STEP = 1e-6
CLASSES = np.array([0, 3, 1, 3, 2])
WEIGHT = np.array([0.5, 1.0, 2.0, 0.25])


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def picked(x: Array) -> Array:
    return np.log(softmax(x))[np.arange(5), CLASSES]


def binary(p: Array, t: Array) -> Array:
    return -(t * np.log(p) + (1 - t) * np.log(1 - p))


def huber(d: Array, delta: float) -> Array:
    size = np.abs(d)
    return np.where(size < delta, d * d / 2, delta * (size - delta / 2))


def cosine(a: Array, b: Array) -> Array:
    return (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def attended(q: Array, k: Array, v: Array) -> Array:
    return softmax(np.where(np.tri(4) > 0, q @ k.swapaxes(-1, -2) / np.sqrt(3), -np.inf)) @ v


@dataclass(frozen=True)
class Formula:
    """A function of tensors, and the same by NumPy, of these arrays."""

    name: str
    ours: Callable[..., Any]
    numpy: Callable[..., Any]
    arrays: tuple[Array, ...]


ROWS, PAIR = normal(5, 4), (normal(3, 4), normal(3, 4, seed=1))
SHARES = tuple(sigmoid(x) for x in PAIR)
QKV = (normal(2, 4, 3), normal(2, 4, 3, seed=1), normal(2, 4, 3, seed=2))

FORMULAS = [
    Formula("cross_entropy", lambda x: F.cross_entropy(x, CLASSES),
            lambda x: -picked(x).mean(), (ROWS,)),
    Formula(
        "cross_entropy by weights",
        lambda x: F.cross_entropy(x, CLASSES, Tensor(WEIGHT)),
        lambda x: -(picked(x) * WEIGHT[CLASSES]).sum() / WEIGHT[CLASSES].sum(),
        (ROWS,),
    ),
    Formula(
        "cross_entropy smoothed",
        lambda x: F.cross_entropy(x, CLASSES, label_smoothing=0.2, reduction="none"),
        lambda x: -0.8 * picked(x) - 0.2 * np.log(softmax(x)).mean(1),
        (ROWS,),
    ),
    Formula(
        "cross_entropy by chances",
        lambda x: F.cross_entropy(x, softmax(ROWS[::-1]), reduction="sum"),
        lambda x: -(softmax(ROWS[::-1]) * np.log(softmax(x))).sum(),
        (ROWS,),
    ),
    Formula(
        "cross_entropy of a class that does not count",
        lambda x: F.cross_entropy(x, CLASSES, ignore_index=3),
        lambda x: -picked(x)[[0, 2, 4]].mean(),
        (ROWS,),
    ),
    Formula("nll_loss", lambda x: F.nll_loss(x, CLASSES, reduction="sum"),
            lambda x: -x[np.arange(5), CLASSES].sum(), (ROWS,)),
    Formula("mse_loss", F.mse_loss, lambda a, b: ((a - b) ** 2).mean(), PAIR),
    Formula("l1_loss", F.l1_loss, lambda a, b: np.abs(a - b).mean(), PAIR),
    Formula("huber_loss", lambda a, b: F.huber_loss(a, b, delta=0.7),
            lambda a, b: huber(a - b, 0.7).mean(), PAIR),
    Formula("smooth_l1_loss", lambda a, b: F.smooth_l1_loss(a, b, beta=0.7),
            lambda a, b: huber(a - b, 0.7).mean() / 0.7, PAIR),
    Formula("binary_cross_entropy", F.binary_cross_entropy,
            lambda p, t: binary(p, t).mean(), SHARES),
    Formula("with_logits", F.binary_cross_entropy_with_logits,
            lambda x, t: binary(sigmoid(x), t).mean(), (PAIR[0], SHARES[1])),
    Formula("kl_div", lambda x, t: F.kl_div(x, t, reduction="batchmean"),
            lambda x, t: (t * (np.log(t) - x)).sum() / 3, (PAIR[0], SHARES[1])),
    Formula("poisson_nll_loss", F.poisson_nll_loss,
            lambda x, t: (np.exp(x) - t * x).mean(), (PAIR[0], SHARES[1])),
    Formula("sigmoid_focal_loss", lambda x: F.sigmoid_focal_loss(x, np.ones((3, 4))),
            lambda x: -0.25 * (1 - sigmoid(x)) ** 2 * np.log(sigmoid(x)), PAIR[:1]),
    Formula("focal_loss", lambda x: F.focal_loss(x, CLASSES),
            lambda x: (-((1 - np.exp(picked(x))) ** 2) * picked(x)).mean(), (ROWS,)),
    Formula("cosine_similarity", F.cosine_similarity, cosine, PAIR),
    Formula("pairwise_distance", F.pairwise_distance,
            lambda a, b: np.linalg.norm(a - b + 1e-6, axis=1), PAIR),
    Formula("normalize", lambda x: F.normalize(x, p=3.0),
            lambda x: x / (np.abs(x) ** 3).sum(1, keepdims=True) ** (1 / 3), PAIR[:1]),
    Formula("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            attended, QKV),
]  # fmt: skip


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda formula: formula.name)
def test_formulas_and_gradients(formula: Formula) -> None:
    arrays = formula.arrays
    expected = np.asarray(formula.numpy(*arrays))

    def cost(xs: list[Tensor]) -> tuple[Tensor, Tensor]:
        found = formula.ours(*xs)
        return (summed(found) if found.ndim else found), found

    (_, found), gradients = modelcc.value_and_grad(cost, has_aux=True)([*map(Tensor, arrays)])
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)
    ways = [np.random.default_rng(i).normal(size=a.shape) for i, a in enumerate(arrays)]

    def moved(by: float) -> float:
        pairs = zip(arrays, ways, strict=True)
        return float(np.sum(formula.numpy(*(a + by * w for a, w in pairs))))

    slope = (moved(STEP) - moved(-STEP)) / (2 * STEP)
    taken = sum(float((g.numpy() * w).sum()) for g, w in zip(gradients, ways, strict=True))
    assert taken == pytest.approx(slope, rel=1e-6, abs=1e-8)


def aligned(chances: Array, target: tuple[int, ...]) -> float:
    """The chance of all paths that are ``target`` without repetitions and blanks, one by one."""
    total = 0.0
    for path in product(range(chances.shape[1]), repeat=len(chances)):
        if tuple(c for c, _ in groupby(path) if c != 0) == target:
            total += float(np.prod([row[c] for row, c in zip(chances, path, strict=True)]))
    return total


def test_ctc_is_the_sum_of_all_alignments() -> None:
    targets, lengths = np.array([[1, 2], [1, 1], [2, 0]]), np.array([2, 2, 1])
    steps = np.array([4, 4, 3])
    x = normal(4, 3, 3)
    found = F.ctc_loss(F.log_softmax(x, 2), targets, steps, lengths, reduction="none").numpy()
    for n in range(3):
        target = tuple(targets[n, : lengths[n]].tolist())
        expected = -np.log(aligned(softmax(x[: steps[n], n]), target))
        assert found[n] == pytest.approx(expected, rel=1e-9)


def test_a_loss_of_a_named_batch() -> None:
    """The mean is over as many rows as there are."""
    graph = modelcc.trace(
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1),
        Input(("n", 4), "f64"),
        Input(("n",), "i64"),
    )
    for count in (2, 5):
        found = interpret(graph.graph, {"x": ROWS[:count], "y": CLASSES[:count]})["output"]
        wanted = F.cross_entropy(ROWS[:count], CLASSES[:count], label_smoothing=0.1)
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-12)
