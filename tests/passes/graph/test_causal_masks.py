"""Causal masks that are made of positions, as exporters make them where lengths are named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from modelcc.ir.index import Sym
from modelcc.ir.types import BOOL, F32, I64, DType
from modelcc.ops.arithmetic import Value
from modelcc.ops.attention import Attention, Softmax
from modelcc.ops.broadcast import Expand, Reshape
from modelcc.ops.comparison import Equal, Greater, GreaterOrEqual, Less, LessOrEqual, Where
from modelcc.ops.elementwise import And, Cast, Not
from modelcc.ops.generate import Full, Iota
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMax
from modelcc.ops.shape import Transpose, Trilu
from modelcc.passes.graph.recognise_attention import RecogniseAttention
from tests.passes.graph.examples import assert_same_meaning
from tests.passes.graph.formulas import call, constant, f32, graph_of

Mask = Callable[[Value, Value, Value], Value]
"""Of queries, 0, and what hides a key."""


def attention(q: Value, k: Value, v: Value, mask: Value) -> Value:
    scores = call(MatMul(), q, call(Transpose((0, 1, 3, 2)), k)) + mask
    return call(MatMul(), call(Softmax(3), scores), v)


S = Sym("s")
TYPES = [f32("b", 2, "s", 4) for _ in range(3)]


def iota(like: Value, axis: int, start: int = 0, rank: int = 2) -> Value:
    """0, 1 … along an axis of s elements."""
    shape = tuple(S if a == axis else 1 for a in range(rank))
    return Value(like.build, like.build.emit(Iota(shape, axis, start)))


def chosen(condition: Value, shown: Value, hidden: Value) -> Value:
    return call(Where(), condition, shown, hidden)


def full(like: Value, number: float, dtype: DType = F32) -> Value:
    return Value(like.build, like.build.emit(Full((S, S), number, dtype)))


MADE: list[tuple[Mask, int]] = [
    (lambda q, zero, low: chosen(call(Less(), iota(q, 0), iota(q, 1)), low, zero), 0),
    (lambda q, zero, low: chosen(call(LessOrEqual(), iota(q, 1), iota(q, 0)), zero, low), 0),
    (lambda q, zero, low: chosen(call(GreaterOrEqual(), iota(q, 0), iota(q, 1)), zero, low), 0),
    (lambda q, zero, low: chosen(call(Greater(), iota(q, 1), iota(q, 0)), low, zero), 0),
    (lambda q, zero, low: chosen(call(Less(), iota(q, 1), iota(q, 0, start=3)), zero, low), 2),
    (
        lambda q, zero, low: chosen(
            call(Less(), iota(q, 1) - iota(q, 0), constant(q, 2, I64)), zero, low
        ),
        1,
    ),
    (
        lambda q, zero, low: chosen(
            call(Not(), call(Less(), call(Reshape((S, 1)), iota(q, 0, rank=1)), iota(q, 1))),
            zero,
            low,
        ),
        0,
    ),
    (
        lambda q, zero, low: (
            full(q, 0.0)
            + chosen(
                call(
                    And(),
                    full(q, True, BOOL),
                    call(LessOrEqual(), iota(q, 3, rank=4), iota(q, 2, rank=4)),
                ),
                zero,
                low,
            )
        ),
        0,
    ),
    (lambda q, zero, low: chosen(call(Trilu(False), full(q, True, BOOL)), zero, low), 0),
    (lambda q, zero, low: call(Trilu(True, 2), full(q, -np.inf)), 1),
    (lambda q, zero, low: call(Expand((2, S, S)), call(Trilu(True, 1), full(q, -np.inf))), 0),
]


@pytest.mark.parametrize(("mask", "offset"), MADE)
@pytest.mark.parametrize("number", [-np.inf, np.finfo(np.float32).min])
def test_causal_masks_made_of_positions(mask: Mask, offset: int, number: float) -> None:
    def formula(q: Value, k: Value, v: Value) -> Value:
        m = mask(q, constant(q, 0.0), constant(q, number))
        return attention(q, k, v, m)

    before = graph_of(formula, *TYPES)
    after = RecogniseAttention()(before)
    assert [n.op for n in after.nodes] == [Attention(1.0, causal=True, offset=offset)]
    assert_same_meaning(before, after)


OTHERS: list[Mask] = [
    # What comes before is hidden, or the query itself, or what is far behind.
    lambda q, zero, low: chosen(call(Less(), iota(q, 1), iota(q, 0)), low, zero),
    lambda q, zero, low: chosen(call(LessOrEqual(), iota(q, 0), iota(q, 1)), low, zero),
    lambda q, zero, low: chosen(call(Less(), iota(q, 0, start=-1), iota(q, 1)), low, zero),
    lambda q, zero, low: call(Trilu(True, 0), full(q, -np.inf)),
    lambda q, zero, low: call(Trilu(False, -1), full(q, -np.inf)),
    # No number hides a key that is 1 or 0, and a row alone is no matrix.
    lambda q, zero, low: chosen(call(Less(), iota(q, 0), iota(q, 1)), zero + 1.0, zero),
    lambda q, zero, low: chosen(call(Less(), constant(q, 1, I64), iota(q, 1)), low, zero),
]


@pytest.mark.parametrize("mask", OTHERS)
def test_masks_of_positions_that_are_not_causal(
    mask: Mask,
) -> None:
    def formula(q: Value, k: Value, v: Value) -> Value:
        m = mask(q, constant(q, 0.0), constant(q, -np.inf))
        return attention(q, k, v, m)

    after = RecogniseAttention()(graph_of(formula, *TYPES))
    (found,) = [n for n in after.nodes if isinstance(n.op, Attention)]
    assert found.op == Attention(1.0) and len(found.inputs) == 4


def test_every_row_of_a_causal_mask_shows_something() -> None:
    def formula(q: Value, k: Value, v: Value) -> Value:
        low = constant(q, -np.inf)
        m = chosen(call(Less(), iota(q, 0), iota(q, 1)), low, constant(q, 0.0))
        rows = call(Equal(), call(ReduceMax((1,)), m), low)
        weights = call(Softmax(3), call(MatMul(), q, call(Transpose((0, 1, 3, 2)), k)) + m)
        return call(MatMul(), chosen(rows, constant(q, 0.0), weights), v)

    before = graph_of(formula, *TYPES)
    after = RecogniseAttention()(before)
    assert [n.op for n in after.nodes] == [Attention(1.0, causal=True)]
    assert_same_meaning(before, after)


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("inside", [True, False])
def test_what_chooses_is_a_constant(offset: int, inside: bool) -> None:
    """As where a mask is too large to be computed at compile time."""

    def formula(q: Value, k: Value, v: Value) -> Value:
        condition = constant(q, (np.tri(5, 7, offset) == inside), BOOL)
        arms = (constant(q, 0.0), constant(q, -np.inf))
        m = chosen(condition, *(arms if inside else arms[::-1]))
        return attention(q, k, v, call(Cast(F32), m))

    before = graph_of(formula, f32(1, 2, 5, 4), f32(1, 2, 7, 4), f32(1, 2, 7, 4))
    after = RecogniseAttention()(before)
    assert [n.op for n in after.nodes] == [Attention(1.0, causal=True, offset=offset)]
    assert_same_meaning(before, after)
