"""Branches and loops of tensors, imperative and traced, and their gradients."""

from __future__ import annotations

import numpy as np
import pytest

import modelcc
from modelcc import Input, ModelError, Tensor, TracingError
from modelcc.ir.graph import Graph
from modelcc.ir.types import Array
from modelcc.ops.control import If, Loop
from tests.tensor.differences import differences, total


def array(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def ops(graph: Graph, kind: type) -> list[object]:
    return [node.op for node in graph.nodes if isinstance(node.op, kind)]


# Branches


def bent(x: Tensor) -> Tensor:
    """x² above 0, 3 x below."""
    return modelcc.cond(total(x) > 0, lambda: total(x * x), lambda: total(x * 3.0))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_branch_is_taken_when_it_runs(sign: int) -> None:
    x = Tensor(sign * np.abs(array(4)))
    expected = np.sum(x.numpy() ** 2 if sign > 0 else 3 * x.numpy())
    np.testing.assert_allclose(bent(x), expected, rtol=1e-12)
    np.testing.assert_allclose(modelcc.jit(bent)(x), expected, rtol=1e-12)


@pytest.mark.parametrize("sign", [1, -1])
def test_gradients_go_through_the_branch_that_is_taken(sign: int) -> None:
    x = sign * np.abs(array(4)) + sign
    for gradient in (modelcc.grad(bent), modelcc.jit(modelcc.grad(bent))):
        np.testing.assert_allclose(gradient(Tensor(x)), differences(bent, x), rtol=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_second_gradients_of_a_branch(sign: int) -> None:
    def slope(x: Tensor) -> Tensor:
        found = modelcc.grad(lambda v: modelcc.cond(v > 0, lambda: v * v * v, lambda: v * v))(x)
        return found * 1.0

    x = Tensor(np.float64(0.7 * sign))
    expected = 6 * 0.7 if sign > 0 else 2.0
    np.testing.assert_allclose(modelcc.jit(modelcc.grad(slope))(x), expected, rtol=1e-12)


def test_what_a_branch_computes_of_captured_values_is_in_the_branch() -> None:
    graph = modelcc.trace(bent, Input((3,))).graph
    (branch,) = ops(graph, If)
    assert isinstance(branch, If)
    assert "Mul" in {type(n.op).__name__ for n in branch.then.nodes}
    assert not [n for n in graph.nodes if type(n.op).__name__ == "Mul"]


def test_branches_take_operands_and_return_trees() -> None:
    def chosen(p: Tensor, pair: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        return modelcc.cond(
            p, lambda q: {"a": q[0], "b": q[1]}, lambda q: {"a": q[1], "b": q[0] * 2}, pair
        )

    pair = (Tensor([1.0, 2.0]), Tensor([3.0, 4.0]))
    for p in (True, False):
        plain, compiled = chosen(Tensor(p), pair), modelcc.jit(chosen)(Tensor(p), pair)
        assert plain.keys() == compiled.keys() == {"a", "b"}
        assert all(plain[k].tolist() == compiled[k].tolist() for k in plain)


def test_branches_of_different_types_are_both_named() -> None:
    def wrong(x: Tensor) -> Tensor:
        return modelcc.cond(x > 0, lambda: x, lambda: x.astype("f64"))

    with pytest.raises(ModelError, match=r"then is \(output: f32\[\]\).*otherwise is .*f64\[\]"):
        modelcc.trace(wrong, Input(()))


def test_a_predicate_is_one_bool() -> None:
    with pytest.raises(ModelError, match=r"must be one bool, and it is bool\[3\]"):
        modelcc.trace(lambda x: modelcc.cond(x > 0, lambda: x, lambda: x), Input((3,)))


def test_a_value_that_leaves_its_branch_is_refused() -> None:
    kept: list[Tensor] = []

    def leaking(x: Tensor) -> Tensor:
        def then(v: Tensor) -> Tensor:
            kept.append(v * 2)
            return v

        y = modelcc.cond(x > 0, then, lambda v: v, x)
        return y + kept[0]

    with pytest.raises(TracingError, match="used outside of the function"):
        modelcc.trace(leaking, Input(())).text()


# Loops


def doubled(x: Tensor) -> Tensor:
    """x doubled until it is 10 or more."""
    return modelcc.while_loop(lambda s: s < 10, lambda s: s * 2.0, x, limit=8)


@pytest.mark.parametrize("x", [0.3, 3.0, 12.0])
def test_while_loops_run_as_python_does(x: float) -> None:
    expected = x
    while expected < 10:
        expected *= 2
    value = Tensor(np.float64(x))
    assert float(doubled(value)) == float(modelcc.jit(doubled)(value)) == expected
    slope = expected / x
    assert float(modelcc.grad(doubled)(value)) == slope
    assert float(modelcc.jit(modelcc.grad(doubled))(value)) == slope


def test_a_limit_ends_a_loop() -> None:
    def three(x: Tensor) -> Tensor:
        return modelcc.while_loop(lambda s: s < 100, lambda s: s + 1.0, x, limit=3)

    assert float(three(Tensor(0.0))) == float(modelcc.jit(three)(Tensor(0.0))) == 3


def test_a_traced_loop_without_a_limit_runs_and_has_no_gradient() -> None:
    def halved(x: Tensor) -> Tensor:
        return modelcc.while_loop(lambda s: s > 1, lambda s: s * 0.5, x)

    assert float(modelcc.jit(halved)(Tensor(10.0))) == 0.625
    with pytest.raises(ModelError, match="without a bound has no gradient"):
        modelcc.jit(modelcc.grad(halved))(Tensor(10.0))


def test_a_state_keeps_its_type() -> None:
    def wrong(x: Tensor) -> Tensor:
        return modelcc.while_loop(lambda s: s < 3, lambda s: s.astype("f64"), x)

    message = r"the state of while_loop changes: the state is .*f32.*the next one is .*f64"
    with pytest.raises(ModelError, match=message):
        modelcc.trace(wrong, Input(()))
    with pytest.raises(ModelError, match=message):
        wrong(Tensor(1.0))


def recurrence(w: Tensor, xs: Tensor, reverse: bool = False) -> tuple[Tensor, Tensor]:
    def body(h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h = h @ w + x
        return h, h * h

    return modelcc.scan(body, Tensor(np.zeros(3)), xs, reverse=reverse)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_a_loop_over_slices(reverse: bool) -> None:
    w, xs = array(3, 3), array(5, 3, seed=1)
    h, expected = np.zeros(3), np.zeros((5, 3))
    for t in reversed(range(5)) if reverse else range(5):
        h = h @ w + xs[t]
        expected[t] = h * h
    last, ys = recurrence(Tensor(w), Tensor(xs), reverse)
    np.testing.assert_allclose(last, h, rtol=1e-12)
    np.testing.assert_allclose(ys, expected, rtol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_scans(reverse: bool) -> None:
    w, xs = array(3, 3), array(4, 3, seed=1)

    def loss(w: Tensor, xs: Tensor) -> Tensor:
        last, ys = recurrence(w, xs, reverse)
        return total(ys) + total(last)

    for gradient in (modelcc.grad(loss, (0, 1)), modelcc.jit(modelcc.grad(loss, (0, 1)))):
        dw, dxs = gradient(Tensor(w), Tensor(xs))
        np.testing.assert_allclose(dw, differences(lambda v: loss(v, Tensor(xs)), w), rtol=1e-6)
        np.testing.assert_allclose(dxs, differences(lambda v: loss(Tensor(w), v), xs), rtol=1e-6)


def test_second_gradients_of_scans() -> None:
    w, xs = array(2, 2), Tensor(array(3, 2, seed=1))

    def loss(w: Tensor) -> Tensor:
        return total(modelcc.scan(lambda h, x: ((h @ w + x) * h,) * 2, Tensor(np.ones(2)), xs)[1])

    def slope(w: Tensor) -> Tensor:
        return total(modelcc.grad(loss)(w))

    expected = differences(slope, w)
    np.testing.assert_allclose(modelcc.grad(slope)(Tensor(w)), expected, rtol=1e-6)
    np.testing.assert_allclose(modelcc.jit(modelcc.grad(slope))(Tensor(w)), expected, rtol=1e-6)


def test_gradients_inside_of_a_loop() -> None:
    def descent(x: Tensor) -> Tensor:
        slope = modelcc.grad(lambda v: total(v * v * v))
        return total(modelcc.fori_loop(0, 3, lambda _, v: v - 0.1 * slope(v), x))

    x = np.abs(array(3)) + 0.5
    expected = x.copy()
    for _ in range(3):
        expected = expected - 0.3 * expected**2
    np.testing.assert_allclose(descent(Tensor(x)), expected.sum(), rtol=1e-12)
    np.testing.assert_allclose(modelcc.grad(descent)(Tensor(x)), differences(descent, x), rtol=1e-6)


def test_the_index_of_a_loop_is_a_tensor() -> None:
    def triangle(n: Tensor) -> Tensor:
        return modelcc.fori_loop(2, n, lambda i, s: s + i, Tensor(0))

    assert int(triangle(Tensor(6))) == int(modelcc.jit(triangle)(Tensor(6))) == 14
    assert int(triangle(Tensor(1))) == int(modelcc.jit(triangle)(Tensor(1))) == 0


def test_loops_in_loops() -> None:
    def powers(x: Tensor) -> Tensor:
        return modelcc.map(lambda v: modelcc.fori_loop(0, 3, lambda _, s: s * v, v), x)

    x = array(4)
    np.testing.assert_allclose(powers(Tensor(x)), x**4, rtol=1e-12)
    slope = modelcc.grad(lambda v: total(powers(v)))(Tensor(x))
    np.testing.assert_allclose(slope, 4 * x**3, rtol=1e-12)


def test_a_scan_over_a_named_length_serves_all_lengths() -> None:
    graph = modelcc.trace(
        lambda xs: modelcc.scan(lambda c, x: (c + x, c * x), Tensor([0.0, 0.0]), xs),
        Input(("time", 2)),
    )
    model = graph.compile()
    for length in (1, 4):
        xs = array(length, 2).astype(np.float32)
        sums = np.cumsum(xs, 0)
        last, ys = model(xs)
        np.testing.assert_allclose(last, sums[-1], rtol=1e-5)
        np.testing.assert_allclose(ys, (sums - xs) * xs, rtol=1e-4, atol=1e-6)


def test_the_body_of_a_scan_is_wrong() -> None:
    xs = Tensor([1.0, 2.0])
    with pytest.raises(ModelError, match=r"carry of scan changes.*f32\[\].*f32\[2\]"):
        modelcc.scan(lambda c, x: (c + xs, None), Tensor(0.0), xs)
    with pytest.raises(ModelError, match="must return a pair"):
        modelcc.scan(lambda c, x: c, Tensor(0.0), xs)
    with pytest.raises(ModelError, match="differ in their first extent"):
        modelcc.scan(lambda c, x: (c, None), Tensor(0.0), xs, length=3)
    with pytest.raises(ModelError, match="needs a length"):
        modelcc.scan(lambda c, x: (c, None), Tensor(0.0))


def test_equal_loops_are_compiled_once() -> None:
    def summed(xs: Tensor) -> Tensor:
        return modelcc.scan(lambda c, x: (c + x, None), Tensor(0.0), xs)[0]

    first = summed(Tensor([1.0, 2.0]))
    second = summed(Tensor([3.0, 4.0]))
    assert first.op is second.op
    assert isinstance(first.op, Loop)
