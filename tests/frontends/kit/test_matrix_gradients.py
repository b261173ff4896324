"""Gradients of what is made of factors of matrices: against differences, and PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from modelcc.frontends.kit import linear_algebra as la
from modelcc.frontends.kit.matrices import identity, product, swapped
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import F64, Array, TensorType
from modelcc.ops.arithmetic import Mul, Value, of
from modelcc.ops.reduce import ReduceSum
from modelcc.train.gradients import value_and_gradients

Function = Callable[[Value], Sequence[Value]]


def positive(x: Value) -> Value:
    """``x x^T + 1``, whose factors are as smooth as x."""
    return product(x, swapped(x)) + identity(x, x.type.shape[-2], x.type.shape[-2])


def inverse(x: Value) -> Value:
    packed, pivots, _ = la.results(la.Lu(), x)
    return la.solved_by_lu(packed, pivots, identity(x, 4, 4))


def values_of(x: Value) -> Sequence[Value]:
    return la.svd(x, False, {})[1:2]


def projections(x: Value) -> Sequence[Value]:
    """Of singular vectors what their signs do not change: squares."""
    u, values, v = la.svd(x, False, {})
    return u * u, values, v * v


def eigen(x: Value) -> Sequence[Value]:
    values, vectors = la.eigh(positive(x), True)
    return values, vectors * vectors


FORMS: dict[str, tuple[Function, tuple[int, ...]]] = {
    "cholesky": (lambda x: la.cholesky(positive(x))[:1], (2, 4, 4)),
    "upper": (lambda x: la.cholesky(positive(x), False)[:1], (4, 5)),
    "determinant": (lambda x: [la.determinant(x)], (2, 4, 4)),
    "logarithm": (lambda x: la.sign_and_logarithm(x)[1:], (4, 4)),
    "inverse": (lambda x: [inverse(x)], (4, 4)),
    "qr": (lambda x: la.qr(x, False), (2, 5, 3)),
    "wide": (lambda x: la.qr(x, False), (3, 5)),
    "square": (lambda x: la.qr(x, False), (4, 4)),
    "values": (values_of, (5, 3)),
    "svd": (projections, (3, 3)),
    "eigen": (eigen, (4, 4)),
    "exponential": (lambda x: [la.exponential(x)], (3, 3)),
}


def weighted(function: Function, shape: Sequence[int]) -> Graph:
    """The sum of all results, each element times a number of its own."""
    build, rng = GraphBuilder("loss"), np.random.default_rng(5)
    x = Value(build, build.input("x", TensorType(tuple(shape), F64)))
    total: Value | None = None
    for y in function(x):
        weights = build.constant(rng.uniform(-1, 1, [int(str(e)) for e in y.type.shape]))
        kept = of(Mul(), y, Value(build, weights))
        own = of(ReduceSum(tuple(range(y.type.rank)), False), kept)
        total = own if total is None else total + own
    assert total is not None
    return build.build([total.name])


def slopes(graph: Graph, name: str, x: Array) -> Array:
    """Central differences of ``name`` by each element."""
    found, step = np.zeros_like(x), 1e-6
    for place in np.ndindex(*x.shape):
        ends: list[float] = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * step
            ends.append(float(interpret(graph, {"x": moved})[name]))
        found[place] = (ends[0] - ends[1]) / (2 * step)
    return found


def point(shape: Sequence[int]) -> Array:
    return np.random.default_rng(3).normal(size=shape)


@pytest.mark.parametrize("name", FORMS)
def test_gradients_agree_with_differences(name: str) -> None:
    function, shape = FORMS[name]
    graph, x = weighted(function, shape), point(shape)
    (loss,) = graph.outputs
    gradient = interpret(value_and_gradients(graph, loss, ["x"]), {"x": x})["x.grad"]
    np.testing.assert_allclose(gradient, slopes(graph, loss, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["cholesky", "determinant", "inverse", "qr", "values"])
def test_gradients_of_gradients(name: str) -> None:
    """By one direction of the gradient."""
    function, shape = FORMS[name]
    first = weighted(function, shape)
    graph = value_and_gradients(first, first.outputs[0], ["x"])
    build = GraphBuilder("second")
    build.input("x", graph.types["x"])
    for key, constant in graph.constants.items():
        build.constant(constant.data, constant.type.dtype, key)
    for node in graph.nodes:
        names = ["slope" if n == "x.grad" else n for n in node.outputs]
        build.add(node.op, *node.inputs, names=names)
    gradient = Value(build, "slope")
    direction = build.constant(np.random.default_rng(8).uniform(-1, 1, shape))
    axes = tuple(range(len(shape)))
    moved = of(ReduceSum(axes, False), gradient * Value(build, direction))
    once = build.build([moved.name])
    twice = value_and_gradients(once, moved.name, ["x"])
    x = point(shape)
    found = interpret(twice, {"x": x})["x.grad"]
    np.testing.assert_allclose(found, slopes(once, moved.name, x), rtol=1e-4, atol=1e-5)


TORCH: dict[str, Callable[[Any, Any], Sequence[Any]]] = {
    "cholesky": lambda t, x: [t.linalg.cholesky(x @ x.mT + t.eye(x.shape[-2], dtype=x.dtype))],
    "determinant": lambda t, x: [t.linalg.det(x)],
    "logarithm": lambda t, x: [t.linalg.slogdet(x)[1]],
    "inverse": lambda t, x: [t.linalg.inv(x)],
    "qr": lambda t, x: t.linalg.qr(x),
    "square": lambda t, x: t.linalg.qr(x),
    "values": lambda t, x: [t.linalg.svdvals(x)],
    "svd": lambda t, x: [y**2 if y.ndim > 1 else y for y in t.linalg.svd(x)],
    "exponential": lambda t, x: [t.linalg.matrix_exp(x)],
}


@pytest.mark.parametrize("name", TORCH)
def test_gradients_agree_with_pytorch(name: str) -> None:
    pytest.importorskip("torch")
    torch: Any = import_module("torch")
    function, shape = FORMS[name]
    graph, x = weighted(function, shape), point(shape)
    gradient = interpret(value_and_gradients(graph, graph.outputs[0], ["x"]), {"x": x})["x.grad"]
    given, rng = torch.tensor(x, requires_grad=True), np.random.default_rng(5)
    total: Any = 0.0
    for y in TORCH[name](torch, given):
        total = total + (y * torch.tensor(rng.uniform(-1, 1, tuple(y.shape)))).sum()
    total.backward()
    np.testing.assert_allclose(gradient, given.grad.numpy(), rtol=1e-8, atol=1e-9)
