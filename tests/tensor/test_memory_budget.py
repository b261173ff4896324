"""Training steps that are to fit into memory."""

from __future__ import annotations

import numpy as np
import pytest

import modelcc
from modelcc import ModelError, Tensor
from modelcc.ir.types import Array
from modelcc.ops.activation import Relu
from modelcc.tensor.declared import Graph
from tests.tensor.differences import total

LAYERS, ROWS, WIDTH = 2, 64, 32


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def loss(ws: list[Tensor], x: Tensor) -> Tensor:
    for w in ws:
        y = x.result(Relu(), x @ w)
        x = x.result(Relu(), y * y)
    return total(x)


ARGUMENTS = (
    [Tensor(array(WIDTH, WIDTH, seed=i)) for i in range(LAYERS)],
    Tensor(array(ROWS, WIDTH)),
)


def traced() -> Graph:
    return modelcc.trace(modelcc.grad(loss), *ARGUMENTS)


def test_a_step_fits_and_its_gradients_are_the_same() -> None:
    graph = traced()
    whole = graph.compile()
    before = whole.report().arena
    budget = before * 2 // 3
    plan = graph.fitted(budget)
    assert plan.before == before
    assert plan.choices
    assert plan.after <= budget
    text = str(plan)
    assert f"{before:,} bytes at most before" in text
    assert "Relu f32[64, 32]: 8192 bytes" in text
    small = modelcc.compile(plan.graph)
    assert small.report().arena == plan.after
    feeds = [*(w.numpy() for w in ARGUMENTS[0]), ARGUMENTS[1].numpy()]
    for a, b in zip(whole(*feeds), small(*feeds), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)


def test_a_compiled_function_fits_and_says_how() -> None:
    whole, small = modelcc.jit(modelcc.grad(loss)), modelcc.jit(modelcc.grad(loss), memory="30KB")
    for a, b in zip(whole(*ARGUMENTS), small(*ARGUMENTS), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
    reports = [model.report() for f in (whole, small) for model, _ in f.models.values()]
    assert reports[1].arena <= 30_000 < reports[0].arena == reports[1].arena_before
    saved = reports[0].arena - reports[1].arena
    assert f"{saved} bytes of {reports[0].arena} less" in repr(reports[1])
    assert reports[0].recomputation == ""
    assert any(row.op == "Relu" and __file__ in row.source[0] for row in reports[1].recomputed)


def test_what_fits_stays_as_it_is() -> None:
    plan = traced().fitted("1 GB")
    assert not plan.choices
    assert plan.before == plan.after


def test_too_little_memory_is_refused_with_what_would_do() -> None:
    with pytest.raises(ModelError, match=r"needs [\d,]+ bytes, [\d,]+ if"):
        modelcc.jit(modelcc.grad(loss), memory="1KB")(*ARGUMENTS)


def test_no_size() -> None:
    with pytest.raises(ModelError, match="memory='much' is no size"):
        modelcc.jit(modelcc.grad(loss), memory="much")(*ARGUMENTS)
