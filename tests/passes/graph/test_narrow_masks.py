"""Masks that are the same along an axis are computed once for it, and mean what they did."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.graph import Graph
from modelcc.ir.types import BOOL, TensorType
from modelcc.ops.activation import Clip
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Attention
from modelcc.ops.elementwise import And, Cast, Not, Where
from modelcc.ops.shape import Expand
from modelcc.passes.graph.narrow_masks import NarrowMasks
from tests.passes.graph.examples import assert_same_meaning
from tests.passes.graph.formulas import Formula, call, constant, f32, graph_of, rows

Q = f32("b", 3, 4, 8)
SHOWN = TensorType((*f32("b", 1, 1, 4).shape,), BOOL)


def attention(q: Value, mask: Value) -> Value:
    return of(Attention(0.5), q, q, q, mask)


def choice(shown: Value, q: Value) -> Value:
    return call(Where(), shown, constant(q, 0.0), constant(q, -1e9))


def mask_type(graph: Graph) -> TensorType:
    (node,) = (n for n in graph.nodes if isinstance(n.op, Attention))
    return graph.types[node.inputs[3]]


def everywhere(q: Value) -> Value:
    return constant(q, np.ones((1, 1, 4, 1), np.bool_), BOOL)


def nothing(q: Value) -> Value:
    return constant(q, np.zeros((1, 1, 4, 4)))


def expanded(x: Value) -> Value:
    return of(Expand((*f32("b", 1, 4, 4).shape,)), x)


def triangle(q: Value) -> Value:
    return constant(q, np.tril(np.ones((4, 4), np.bool_)), BOOL)


@pytest.mark.parametrize(
    ("formula", "shape"),
    rows(
        (lambda q, m: attention(q, choice(of(And(), everywhere(q), m), q)), ("b", 1, 1, 4)),
        (lambda q, m: attention(q, choice(expanded(of(Not(), m)), q)), ("b", 1, 1, 4)),
        (lambda q, m: attention(q, of(Clip(-1.0, 0.0), choice(expanded(m), q))), ("b", 1, 1, 4)),
        (lambda q, m: attention(q, of(Cast(q.type.dtype), expanded(m)) * 0.25), ("b", 1, 1, 4)),
        (lambda q, m: attention(q, nothing(q) + choice(m, q)), ("b", 1, 1, 4)),
        (lambda q, m: attention(q, choice(of(And(), triangle(q), m), q)), ("b", 1, 4, 4)),
    ),
)
def test_of_each_key_or_of_each_pair(formula: Formula, shape: tuple[int | str, ...]) -> None:
    before = graph_of(formula, Q, SHOWN)
    after = NarrowMasks()(before)
    assert mask_type(after) == f32(*shape)
    assert_same_meaning(before, after)


def test_what_may_turn_out_to_fit_stays_expanded() -> None:
    """Of two named extents either may be 1."""
    shown = TensorType((*f32("c", 1, 1, 4).shape,), BOOL)
    before = graph_of(lambda q, m: attention(q, choice(expanded(m), q)), Q, shown)
    assert NarrowMasks()(before) is before
