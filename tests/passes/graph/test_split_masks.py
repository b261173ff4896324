"""Masks that hide what comes later and padding besides, as exporters make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Sym
from modelcc.ir.types import BOOL, F32, I64, Array, TensorType
from modelcc.ops.arithmetic import Value
from modelcc.ops.attention import Attention, Softmax
from modelcc.ops.comparison import Equal, Less, LessOrEqual, Where
from modelcc.ops.elementwise import Add, And, Not, Or
from modelcc.ops.generate import Indices, Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Transpose
from modelcc.passes.graph.recognise_attention import RecogniseAttention
from tests.passes.graph.formulas import call, constant, f32, graph_of

B, S, P = Sym("b"), Sym("s"), Sym("p")
LOWEST = float(np.finfo(np.float32).min)
BATCH, LENGTH = 3, 7

Mask = Callable[[Value, float], Value]
"""Of where keys are shown and the number that hides them."""


def iota(like: Value, axis: int) -> Value:
    """0, 1 … along one of two axes of s elements."""
    return Value(like.build, like.build.emit(Iota((S, 1) if axis == 0 else (1, S), axis)))


def causal(like: Value) -> Value:
    return call(LessOrEqual(), iota(like, 1), iota(like, 0))


def later(like: Value) -> Value:
    return call(Less(), iota(like, 0), iota(like, 1))


def added(condition: Value, number: float) -> Value:
    zero, low = constant(condition, 0.0, F32), constant(condition, number, F32)
    return call(Where(), condition, zero, low)


def hiding(condition: Value, number: float) -> Value:
    zero, low = constant(condition, 0.0, F32), constant(condition, number, F32)
    return call(Where(), condition, low, zero)


ONE_CHOICE: tuple[Mask, ...] = (
    lambda pad, low: added(call(And(), causal(pad), pad), low),
    lambda pad, low: added(call(And(), pad, call(Not(), later(pad))), low),
    lambda pad, low: hiding(call(Or(), later(pad), call(Not(), pad)), low),
    lambda pad, low: hiding(call(Not(), call(And(), pad, causal(pad))), low),
)


def packed(pad: Value, low: float) -> Value:
    """Each query sees keys of its own kind only, itself always."""
    alike = call(Equal(), pad, call(Transpose((0, 1, 3, 2)), pad))
    return added(call(And(), causal(pad), alike), low)


SUMS: tuple[Mask, ...] = (
    lambda pad, low: added(causal(pad), -np.inf) + added(pad, low),
    lambda pad, low: added(pad, low) + hiding(later(pad), -np.inf),
    lambda pad, low: constant(pad, 1.0, F32) + added(call(And(), causal(pad), pad), -np.inf),
)


def graph_with(mask: Mask, number: float) -> Graph:
    def formula(q: Value, k: Value, v: Value, pad: Value) -> Value:
        scores = call(MatMul(), q, call(Transpose((0, 1, 3, 2)), k)) + mask(pad, number)
        return call(MatMul(), call(Softmax(3), scores), v)

    types = [f32("b", 2, "s", 4) for _ in range(3)]
    return graph_of(formula, *types, TensorType((B, 1, 1, S), BOOL))


def feeds() -> Mapping[str, Array]:
    """The first sequence is padded on the left, so that its first rows see nothing."""
    random = np.random.default_rng(3)
    shown = random.random((BATCH, 1, 1, LENGTH)) < 0.6
    shown[0, ..., :3], shown[1] = False, True
    values = random.standard_normal((3, BATCH, 2, LENGTH, 4)).astype(np.float32)
    return {**{f"x{n}": x for n, x in enumerate(values)}, "x3": shown}


def results(graph: Graph) -> Array:
    with np.errstate(invalid="ignore"):
        found = interpret(graph, feeds())
    (y,) = found.values()
    return y


@pytest.mark.parametrize("mask", [*ONE_CHOICE, *SUMS, packed])
@pytest.mark.parametrize("number", [-np.inf, LOWEST])
def test_a_mask_is_causal_and_the_rest_is_added(mask: Mask, number: float) -> None:
    """Rows that see nothing are NaN with infinities, and else the mean of all values."""
    before = graph_with(mask, number)
    after = RecogniseAttention()(before)
    (found,) = [n for n in after.nodes if isinstance(n.op, Attention)]
    assert found.op == Attention(1.0, causal=True)
    wanted = results(before)
    infinite = number == -np.inf or mask is SUMS[2]
    assert np.isnan(wanted).any() == (infinite and mask is not packed)
    np.testing.assert_allclose(results(after), wanted, rtol=2e-5, atol=2e-6)


def test_padding_alone_is_read() -> None:
    """No mask of all queries by all keys is left."""
    after = RecogniseAttention()(graph_with(ONE_CHOICE[0], LOWEST))
    (found,) = [n for n in after.nodes if isinstance(n.op, Attention)]
    assert after.types[found.inputs[3]].shape == (B, 1, 1, S)
    made = [after.types[name].shape for node in after.nodes for name in node.outputs]
    assert all(shape[-2:] != (S, S) for shape in made)


WHOLE: tuple[Mask, ...] = (
    # What is not causal, or shown by either of two; a number that does not swallow scores.
    lambda pad, low: added(call(And(), later(pad), pad), low),
    lambda pad, low: added(call(Or(), causal(pad), pad), low),
    lambda pad, low: added(call(And(), causal(pad), pad), -1e4),
    # Two numbers overflow together where both hide a key.
    lambda pad, low: added(causal(pad), LOWEST) + added(pad, low),
)


@pytest.mark.parametrize("mask", WHOLE)
def test_other_masks_stay_whole(mask: Mask) -> None:
    before = graph_with(mask, LOWEST)
    after = RecogniseAttention()(before)
    (found,) = [n for n in after.nodes if isinstance(n.op, Attention)]
    assert found.op == Attention(1.0) and len(found.inputs) == 4
    np.testing.assert_allclose(results(after), results(before), rtol=2e-5, atol=2e-6)


def test_queries_come_behind_a_named_past() -> None:
    def formula(q: Value, k: Value, v: Value) -> Value:
        past = Value(q.build, q.build.emit(Indices((P,), (1,), I64)))
        keys = Value(q.build, q.build.emit(Iota((1, P + S), 1)))
        mask = hiding(call(Less(), call(Add(), iota(q, 0), past), keys), -np.inf)
        scores = call(MatMul(), q, call(Transpose((0, 1, 3, 2)), k)) + mask
        return call(MatMul(), call(Softmax(3), scores), v)

    keys = TensorType((B, Sym("h"), P + S, 4), F32)
    before = graph_of(formula, f32("b", "h", "s", 4), keys, keys)
    after = RecogniseAttention()(before)
    assert [n.op for n in after.nodes] == [Attention(1.0, causal=True, offset=P)]
