"""Products of one operand are one where slices of its result are read in place, and only there."""

from __future__ import annotations

import numpy as np
import pytest
from machines import chosen_options

from modelcc.driver import NOWHERE, pipeline, target_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.types import U8, U32, TensorType
from modelcc.ops.activation import Silu
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.attention import Attention
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.ops.norm import RMSNorm
from modelcc.ops.packed_matmul import PackedMatMul
from modelcc.ops.shape import Concat, Reshape, Transpose
from modelcc.ops.slicing import Slice
from modelcc.passes.graph.fold_constants import FoldConstants
from modelcc.passes.graph.join_products import JoinProducts
from tests.passes.graph.examples import assert_same_meaning
from tests.passes.graph.formulas import Unary, constant, f32, graph_of, op_names, weights

X = f32(2, "n", 16)
ROWS = f32(10, 16)


def linear(x: Value, columns: int, seed: int, bias: bool = False) -> Value:
    product = of(MatMul(), x, weights(x, 16, columns, seed=seed) - 1.0)
    return product + weights(x, columns, seed=seed) if bias else product


def heads(x: Value, count: int, rows: int = 2) -> Value:
    length = x.type.shape[1] if x.type.rank == 3 else 10 // rows
    split = of(Reshape((rows, length, count, 8)), x)
    return of(Transpose((0, 2, 1, 3)), split)


def attention(x: Value) -> Value:
    """Of queries and values with biases, keys without."""
    q, k, v = linear(x, 32, 0, True), linear(x, 32, 1), linear(x, 32, 2, True)
    return of(Attention(0.35), heads(q, 4), heads(k, 4), heads(v, 4))


def rotated(x: Value) -> Value:
    """Heads that are worked on in halves, as rotary positions are, and fewer keys."""
    q, k = heads(linear(x, 32, 0), 4), heads(linear(x, 16, 1), 2)
    rows = x.type.shape[1]
    part = (2, 4, rows, 4)
    low, high = (of(Slice((0, 0, 0, s), part, (1, 1, 1, 1)), q) for s in (0, 4))
    turned = q * 0.5 + of(Concat(3), -high, low)
    return of(Attention(0.35), turned, of(Concat(1), k, k), of(Concat(1), k, k))


def matrices(x: Value) -> Value:
    """Of rows of both batches, as Gemm has them, biases within."""
    q, k = (of(Gemm(), x, weights(x, 16, 16, seed=s) - 1.0, weights(x, 16, seed=s)) for s in (0, 1))
    return of(Attention(0.35), heads(q, 2), heads(k, 2), heads(k, 2))


def packed(x: Value) -> Value:
    """Of four bits, in two blocks."""
    rng = np.random.default_rng(0)

    def product(columns: int) -> Value:
        words = constant(x, rng.integers(0, 2**32, (2, 1, columns), np.uint32), U32)
        scales, zero = weights(x, 2, columns, seed=columns), constant(x, np.array(8), U8)
        return of(PackedMatMul(4), x, words, scales * 0.01, zero)

    return of(Attention(0.35), *(heads(product(n), 2) for n in (16, 16, 16)))


def products(graph: Graph) -> int:
    return sum(name in ("MatMul", "Gemm", "PackedMatMul") for name in op_names(graph))


@pytest.mark.parametrize(
    ("formula", "type"),
    [(attention, X), (rotated, X), (matrices, ROWS), (packed, X)],
    ids=["biases of some", "rotated", "of rows", "of few bits"],
)
def test_one_product(formula: Unary, type: TensorType) -> None:
    before = folded(formula, type)
    assert products(before) > 1
    after = JoinProducts()(before)
    assert products(after) == 1
    assert_same_meaning(before, after, 2e-5)


def folded(formula: Unary, type: TensorType) -> Graph:
    """A graph whose constants are constants."""
    return FoldConstants()(graph_of(formula, type))


def gated(x: Value) -> Value:
    return of(Silu(), linear(x, 32, 0)) * linear(x, 32, 1)


def with_norms_of_heads(x: Value) -> Value:
    q, k = (of(RMSNorm(3, 1e-6), heads(linear(x, 32, s), 4)) for s in (0, 1))
    return of(Attention(0.35), q, k, k)


def scaled(x: Value) -> Value:
    q, k = linear(x, 32, 0) * 0.3, linear(x, 32, 1)
    return of(Attention(1.0), heads(q, 4), heads(k, 4), heads(k, 4))


def of_others(x: Value) -> Value:
    q, k = linear(x, 32, 0), linear(x * 2.0, 32, 1)
    return of(Attention(0.35), heads(q, 4), heads(k, 4), heads(k, 4))


@pytest.mark.parametrize("formula", [gated, with_norms_of_heads, scaled, of_others])
def test_products_of_their_own(formula: Unary) -> None:
    before = folded(formula, X)
    assert JoinProducts()(before) is before


def test_what_a_caller_gets_is_not_cut_out() -> None:
    build = GraphBuilder()
    x = Value(build, build.input("x", X))
    q, k = linear(x, 32, 0), linear(x, 32, 1)
    y = of(Attention(0.35), heads(q, 4), heads(k, 4), heads(k, 4))
    before = FoldConstants()(build.build([y.name, k.name]))
    assert JoinProducts()(before) is before


@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_80", "opencl", "webgpu", "native"])
def test_devices_want_it(target: str) -> None:
    options = chosen_options(target=target)
    names = [stage.name for stage in pipeline(target_of(options), options, NOWHERE)]
    assert (JoinProducts.__name__ in names) == (target != "native")
