"""Gradients of branches and loops, and of ops of fixed dtypes, against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Range, Sym
from modelcc.ir.types import BOOL, F64, I64, Array, TensorType
from modelcc.ops.arithmetic import Add, Mul
from modelcc.ops.comparison import Greater, Less
from modelcc.ops.control import If, Loop
from modelcc.ops.generate import filled
from modelcc.ops.matmul import MatMul
from modelcc.ops.packed_matmul import PackedMatMul, packed_words
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.reverse import GradientError, adjoints
from modelcc.ops.slicing import At
from modelcc.ops.transcendental import Sin, Tanh

STEP = Sym("step")
Written = Callable[[GraphBuilder, Sequence[str]], str]
"""A scalar result of graph inputs."""


def f64(*shape: int) -> TensorType:
    return TensorType(shape, F64)


def gradients(write: Written, *operands: Array) -> list[Array]:
    """Of the result by every float operand, by the interpreter."""
    build = GraphBuilder()
    types = [TensorType(a.shape, F64 if a.dtype == np.float64 else BOOL) for a in operands]
    xs = [build.input(f"x{i}", t) for i, t in enumerate(types)]
    y = write(build, xs)
    found = adjoints(build, list(build.nodes()), {y: filled(build, y, 1.0)}, xs)
    wanted = [found[x] for x, t in zip(xs, types, strict=True) if t.dtype == F64]
    graph = build.build([y, *wanted])
    results = interpret(graph, dict(zip(xs, operands, strict=True)))
    return [results[name] for name in wanted]


def differences(write: Written, *operands: Array) -> list[Array]:
    """Central differences of the result by every element of every float operand."""
    build = GraphBuilder()
    types = [TensorType(a.shape, F64 if a.dtype == np.float64 else BOOL) for a in operands]
    xs = [build.input(f"x{i}", t) for i, t in enumerate(types)]
    graph = build.build([write(build, xs)])

    def value(i: int, place: tuple[int, ...], by: float) -> float:
        moved = [a.copy() for a in operands]
        moved[i][place] += by
        return float(interpret(graph, dict(zip(xs, moved, strict=True)))[graph.outputs[0]])

    slopes: list[Array] = []
    for i, operand in enumerate(operands):
        if operand.dtype == np.float64:
            slope = [
                (value(i, p, 1e-6) - value(i, p, -1e-6)) / 2e-6 for p in np.ndindex(operand.shape)
            ]
            slopes.append(np.reshape(slope, operand.shape))
    return slopes


def assert_right(write: Written, *operands: Array) -> None:
    pairs = zip(gradients(write, *operands), differences(write, *operands), strict=True)
    for found, wanted in pairs:
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)


def total(build: GraphBuilder, *names: str) -> str:
    """The sum of all elements, each of its own weight."""
    sums: list[str] = []
    for name in names:
        type = build.type_of(name)
        weights = np.random.default_rng(len(sums)).uniform(-1, 1, type.static_shape())
        weighted = build.emit(Mul(), name, build.constant(weights))
        sums.append(build.emit(ReduceSum(tuple(range(type.rank)), False), weighted))
    result = sums[0]
    for more in sums[1:]:
        result = build.emit(Add(), result, more)
    return result


def values(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def branch(name: str, op: Add | Mul) -> Graph:
    build = GraphBuilder(name)
    x, y = build.input("x", f64(3)), build.input("y", f64(2, 3))
    both = build.emit(op, x, y)
    return build.build([build.emit(Sin(), both), both, x])


@pytest.mark.parametrize("taken", [True, False])
def test_the_branch_that_is_taken_has_the_gradient(taken: bool) -> None:
    def write(build: GraphBuilder, xs: Sequence[str]) -> str:
        return total(build, *build.add(If(branch("a", Add()), branch("b", Mul())), *xs))

    assert_right(write, np.array(taken), values(3), values(2, 3, seed=1))


def recurrence(reverse: bool = False) -> Graph:
    """``h = tanh(h @ w + x[t])`` and h as a slice; x read slice by slice, w in each iteration."""
    build = GraphBuilder("body", {"step": Range(0, None)})
    h, x, w = (build.input(n, t) for n, t in (("h", f64(2)), ("x", f64(4, 2)), ("w", f64(2, 2))))
    own = build.emit(At(0, 3 - STEP if reverse else STEP), x)
    after = build.emit(Tanh(), build.emit(Add(), build.emit(MatMul(), h, w), own))
    return build.build([after, after])


@pytest.mark.parametrize("reverse", [False, True])
def test_loops_go_back_over_their_iterations(reverse: bool) -> None:
    loop = Loop(recurrence(reverse), "step", 4, 1, axes=(1,), backwards=(reverse,))
    assert_right(
        lambda build, xs: total(build, *build.add(loop, *xs)),
        *(values(2), values(4, 2, seed=1), values(2, 2, seed=2)),
    )


def growing() -> Graph:
    """``s = s * x[t] + s`` as long as it is below a limit; an integer counts along."""
    build = GraphBuilder("body", {"step": Range(0, None)})
    build.input("more", TensorType((), BOOL))
    s, n = build.input("s", f64()), build.input("n", TensorType((), I64))
    x = build.input("x", f64(6))
    after = build.emit(Add(), build.emit(Mul(), s, build.emit(At(0, STEP), x)), s)
    count = build.emit(Add(), n, build.constant(np.array(1), I64))
    return build.build([build.emit(Less(), after, build.constant(np.array(3.0))), after, count, s])


@pytest.mark.parametrize("first", [0.5, 2.9, 5.0])
def test_iterations_that_were_not_run_have_none(first: float) -> None:
    loop = Loop(growing(), "step", 6, 3, True, axes=(0,), backwards=(False,))

    def write(build: GraphBuilder, xs: Sequence[str]) -> str:
        more = build.emit(Greater(), build.constant(np.array(3.0)), xs[0])
        zero = build.constant(np.array(0), I64)
        _, s, _, slices = build.add(loop, more, xs[0], zero, xs[1])
        return total(build, s, slices)

    assert_right(write, np.array(first), np.abs(values(6, seed=3)))


def test_gradients_of_gradients_of_loops() -> None:
    loop = Loop(recurrence(), "step", 4, 1, axes=(0,), backwards=(False,))

    def write(build: GraphBuilder, xs: Sequence[str]) -> str:
        y = total(build, *build.add(loop, *xs))
        found = adjoints(build, list(build.nodes()), {y: filled(build, y, 1.0)}, xs)
        return total(build, found[xs[2]])

    assert_right(write, values(2), values(4, 2, seed=1), values(2, 2, seed=2))


def test_loops_without_a_bound_have_none() -> None:
    body = GraphBuilder("body", {"step": Range(0, None)})
    body.input("more", TensorType((), BOOL))
    s = body.input("s", f64())
    after = body.emit(Add(), s, s)
    graph = body.build([body.emit(Less(), after, body.constant(np.array(3.0))), after])
    build = GraphBuilder()
    x = build.input("x", f64())
    _, y = build.add(Loop(graph, "step", None, 2, True), build.constant(np.array(True)), x)
    with pytest.raises(GradientError, match="without a bound"):
        adjoints(build, list(build.nodes()), {y: filled(build, y)}, [x])


def test_products_by_packed_weights() -> None:
    """In f32 the only gradients there can be: of x, of which it is linear, and of the scales."""
    rng = np.random.default_rng(0)
    x, dy = (rng.uniform(-1, 1, (3, n)).astype(np.float32) for n in (32, 5))
    fields = rng.integers(0, 16, (32, 5))
    scale = rng.uniform(0.5, 1, (2, 5)).astype(np.float32)
    build = GraphBuilder()
    words = build.constant(packed_words(fields, 4, 16))
    x_, scale_ = build.constant(x), build.constant(scale)
    zero = build.constant(np.array(8, np.uint8))
    y = build.emit(PackedMatMul(), x_, words, scale_, zero)
    found = adjoints(build, list(build.nodes()), {y: build.constant(dy)}, [x_, scale_])
    results = interpret(build.build([found[x_], found[scale_]]), {})
    steps = fields - 8
    weights = steps * np.repeat(scale, 16, 0)
    np.testing.assert_allclose(results[found[x_]], dy @ weights.T, rtol=1e-5)
    each = (x.T @ dy * steps).reshape(2, 16, 5).sum(1)
    np.testing.assert_allclose(results[found[scale_]], each, rtol=1e-5, atol=1e-5)
