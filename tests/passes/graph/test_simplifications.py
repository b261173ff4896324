"""Canonical form, algebra, batch norms, transposes, reshapes, constants: rule by rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import Sym
from modelcc.ir.types import BOOL, F16, F32, F64, I64, TensorType
from modelcc.ops.activation import Clip, Relu
from modelcc.ops.arithmetic import Value
from modelcc.ops.conv import Conv, ConvTranspose
from modelcc.ops.elementwise import (
    Abs,
    Cast,
    ClipTensor,
    Div,
    Exp,
    Identity,
    Max,
    Min,
    Neg,
    Not,
    Pow,
    Sqrt,
    Sub,
    Tanh,
    Where,
)
from modelcc.ops.matmul import Einsum, Gemm, MatMul
from modelcc.ops.norm import BatchNorm
from modelcc.ops.reduce import ReduceMean
from modelcc.ops.shape import Concat, Full, Reshape, Transpose
from modelcc.passes.graph.canonicalise import Canonicalise
from modelcc.passes.graph.common_subexpressions import CommonSubexpressions
from modelcc.passes.graph.dead_code import DeadCode
from modelcc.passes.graph.eliminate_reshapes import EliminateReshapes
from modelcc.passes.graph.eliminate_transposes import EliminateTransposes
from modelcc.passes.graph.fold_batch_norm import FoldBatchNorm
from modelcc.passes.graph.fold_constants import FoldConstants
from modelcc.passes.graph.simplify_algebra import SimplifyAlgebra
from tests.passes.graph.examples import assert_same_meaning
from tests.passes.graph.formulas import (
    Formula,
    call,
    constant,
    f32,
    graph_of,
    op_names,
    rows,
    weights,
)

X = f32(2, "n", 3)
NCHW = f32(1, 4, 5, 5)


def run(step: Any, formula: Formula, *types: TensorType) -> Graph:
    before = graph_of(formula, *types)
    after = step(before)
    assert_same_meaning(before, after)
    return after


@pytest.mark.parametrize(
    ("formula", "names"),
    rows(
        (lambda x: call(Exp(), call(Identity(), x)), ["Exp"]),
        (lambda x: call(Exp(), call(Cast(F32), x)), ["Exp"]),
        (lambda x: call(Exp(), call(Concat(0), x)), ["Exp"]),
        (lambda x: call(Max(), constant(x, 0.0), x), ["Relu"]),
        (lambda x: call(Min(), call(Max(), x, constant(x, -1.0)), constant(x, 1.0)), ["Clip"]),
        (lambda x: call(ClipTensor(), x, constant(x, 0.0), constant(x, 6.0)), ["Clip"]),
        (lambda x: call(Clip(None, 6.0), call(Relu(), x)), ["Clip"]),
        (lambda x: call(Clip(2.0, 3.0), call(Clip(0.0, 1.0), x)), ["Clip", "Clip"]),
        (lambda x: call(Div(), constant(x, 1.0), call(Sqrt(), x * x)), ["Mul", "Sqrt", "Div"]),
    ),
)
def test_canonicalise(formula: Formula, names: list[str]) -> None:
    assert op_names(run(Canonicalise(), formula, X)) == names


@pytest.mark.parametrize(("parts", "names"), [(1, ["Exp"]), (2, ["Concat", "Exp"])])
def test_parts_without_elements_go(parts: int, names: list[str]) -> None:
    def formula(x: Value) -> Value:
        empty = constant(x, np.ones((2, 0)))
        return call(Exp(), call(Concat(1), empty, *[x] * parts, empty))

    assert op_names(run(Canonicalise(), formula, f32(2, 3))) == names


def test_an_identity_of_an_input_that_is_an_output_stays() -> None:
    after = run(Canonicalise(), lambda x: call(Identity(), x), X)
    assert op_names(after) == ["Identity"]


def test_gemm_with_constants_is_plain() -> None:
    def formula(x: Value) -> Value:
        op = Gemm(alpha=0.5, beta=2.0, trans_b=True)
        return call(op, x, weights(x, 6, 3), weights(x, 6))

    after = run(Canonicalise(), formula, f32("n", 3))
    assert [n.op for n in after.nodes] == [Gemm()]
    matmul = run(Canonicalise(), lambda x: call(Gemm(trans_b=True), x, weights(x, 6, 3)), f32(2, 3))
    assert op_names(matmul) == ["MatMul"]


@pytest.mark.parametrize(
    ("formula", "names"),
    rows(
        (lambda x: call(Exp(), x + 0.0), ["Exp"]),
        (lambda x: call(Exp(), x * 1.0), ["Exp"]),
        (lambda x: call(Exp(), x * constant(x, np.ones((1, 1, 3)))), ["Exp"]),
        (lambda x: call(Exp(), call(Neg(), -x)), ["Exp"]),
        (lambda x: call(Exp(), x * -1.0), ["Neg", "Exp"]),
        (lambda x: x * 3.0 * 5.0, ["Mul"]),
        (lambda x: x / 3.0, ["Mul"]),
        (lambda x: x / 1e-42, ["Div"]),
        (lambda x: x + 3.0 + 5.0, ["Add", "Add"]),
        (lambda x: x - 3.0, ["Add"]),
        (lambda x: call(Exp(), x) + (-x), ["Exp", "Sub"]),
        (lambda x: call(Exp(), x) - (-x), ["Exp", "Add"]),
        (lambda x: -(call(Exp(), x) - x), ["Exp", "Sub"]),
        (lambda x: call(Pow(), x, constant(x, 2.0)), ["Mul"]),
        (lambda x: call(Pow(), x, constant(x, 3.0)), ["Mul", "Mul"]),
        (lambda x: call(Pow(), x * x, constant(x, 0.5)), ["Mul", "Sqrt"]),
        (lambda x: call(Pow(), x * x, constant(x, -0.5)), ["Mul", "Rsqrt"]),
        (lambda x: call(Pow(), x * x, constant(x, 2.5)), ["Mul", "Pow"]),
        (lambda x: 1.0 / x, ["Reciprocal"]),
        (lambda x: x / call(Sqrt(), call(ReduceMean((2,), True), x * x)), None),
        (lambda x: call(Relu(), call(Relu(), x)), ["Relu"]),
        (lambda x: call(Abs(), -x), ["Abs"]),
        (lambda x: call(Cast(F32), call(Cast(F64), x)) * x, ["Mul"]),
        (lambda x: call(Cast(F32), call(Cast(F16), x)), ["Cast", "Cast"]),
        (lambda x: call(Where(), constant(x, np.ones((1, 1, 3)), BOOL), x, -x) * x, ["Mul"]),
    ),
)
def test_simplify_algebra(formula: Formula, names: list[str] | None) -> None:
    wanted = names or ["Mul", "ReduceMean", "Rsqrt", "Mul"]
    assert op_names(run(SimplifyAlgebra(), formula, X)) == wanted


def test_integers_keep_integer_rules() -> None:
    integers = TensorType((4,), I64)
    after = run(SimplifyAlgebra(), lambda x: x + constant(x, 3) + constant(x, 5), integers)
    assert op_names(after) == ["Add"]
    halves = run(SimplifyAlgebra(), lambda x: call(Div(), x, constant(x, 2)), integers)
    assert op_names(halves) == ["Div"]
    flags = TensorType((4,), BOOL)
    assert op_names(SimplifyAlgebra()(graph_of(lambda x: call(Not(), x), flags))) == ["Not"]


def conv(x: Value, *operands: Value, groups: int = 1) -> Value:
    return call(Conv((1, 1), (1, 1), (1, 1), (1, 1), groups), x, *operands)


def norm(x: Value, channels: int) -> Value:
    return call(BatchNorm(1e-3), x, *(weights(x, channels, seed=s) for s in range(4)))


def upsample(x: Value, groups: int) -> Value:
    op = ConvTranspose((2, 2), (1, 1), (1, 1), (1, 1), groups, (0, 0))
    return call(op, x, weights(x, 4, 6 // groups, 3, 3))


@pytest.mark.parametrize(
    ("formula", "types", "names"),
    rows(
        (lambda x: norm(conv(x, weights(x, 6, 4, 3, 3)), 6), (NCHW,), ["Conv"]),
        (lambda x: norm(conv(x, weights(x, 6, 4, 3, 3), weights(x, 6)), 6), (NCHW,), ["Conv"]),
        (lambda x: norm(conv(x, weights(x, 6, 2, 3, 3), groups=2), 6), (NCHW,), ["Conv"]),
        (lambda x: norm(upsample(x, 1), 6), (NCHW,), ["ConvTranspose"]),
        (lambda x: norm(upsample(x, 2), 6), (NCHW,), ["ConvTranspose"]),
        (
            lambda x: (
                conv(x, weights(x, 6, 4, 3, 3)) * weights(x, 6, 1, 1) + weights(x, 1, 6, 1, 1)
            ),
            (NCHW,),
            ["Conv"],
        ),
        (lambda x: conv(x, weights(x, 6, 4, 3, 3)) * 2.0 + 1.0, (NCHW,), ["Conv"]),
        (
            lambda x: (conv(x, weights(x, 6, 4, 3, 3)) + weights(x, 6, 5, 5)) * weights(x, 6, 1, 1),
            (NCHW,),
            ["Conv", "Add"],
        ),
        (lambda x: conv(x, weights(x, 6, 4, 3, 3)) * weights(x, 5), (NCHW,), ["Conv", "Mul"]),
        (lambda x: norm(x, 4), (NCHW,), ["Mul", "Add"]),
        (
            lambda x: norm(call(Gemm(), x, weights(x, 4, 6), weights(x, 6)), 6),
            (f32("n", 4),),
            ["Gemm"],
        ),
        (
            lambda x: norm(
                call(Gemm(trans_b=True, beta=0.5), x, weights(x, 6, 4), weights(x, 6)), 6
            ),
            (f32("n", 4),),
            ["Gemm"],
        ),
        (
            lambda x: (call(MatMul(), x, weights(x, 3, 6)) + weights(x, 6)) * weights(x, 6, seed=3),
            (X,),
            ["MatMul", "Add"],
        ),
        (lambda x: call(MatMul(), x, weights(x, 3, 6)) * weights(x, 4, 1), (f32(4, 3),), None),
    ),
)
def test_fold_batch_norm(
    formula: Formula, types: tuple[TensorType, ...], names: list[str] | None
) -> None:
    assert op_names(run(FoldBatchNorm(), formula, *types)) == (names or ["MatMul", "Mul"])


def test_weights_that_others_read_are_not_scaled() -> None:
    def formula(x: Value) -> Value:
        y = conv(x, weights(x, 4, 4, 3, 3))
        return norm(y, 4) + y

    assert op_names(run(FoldBatchNorm(), formula, NCHW)) == ["Conv", "Mul", "Add", "Add"]


def test_factors_of_what_has_no_weights_are_not_written_out() -> None:
    """One for each channel of such a tensor would not fit into memory."""
    graph = graph_of(lambda x: call(Relu(), x) * 2.0, f32(3, 1 << 42))
    assert FoldBatchNorm()(graph) == graph


def transpose(x: Value, *perm: int) -> Value:
    return call(Transpose(perm), x)


@pytest.mark.parametrize(
    ("formula", "types", "names"),
    rows(
        (lambda x: transpose(transpose(x, 1, 0, 2), 1, 0, 2) * 2.0, (X,), ["Mul"]),
        (lambda x: transpose(transpose(x, 1, 0, 2), 1, 2, 0), (X,), ["Transpose"]),
        (lambda x: transpose(x, 1, 0, 2), (f32(1, 4, 3),), ["Reshape"]),
        (
            lambda x, y: transpose(x, 0, 2, 1) + transpose(y, 0, 2, 1),
            (X, X),
            ["Add", "Transpose"],
        ),
        (
            lambda x: transpose(call(Tanh(), transpose(x, 0, 2, 1) * weights(x, 3, 1)), 0, 2, 1),
            (f32(2, 4, 3),),
            ["Mul", "Tanh"],
        ),
        (
            lambda x, y: transpose(x, 0, 2, 1) + transpose(y, 1, 2, 0),
            (f32(4, 3, 5), f32(3, 4, 5)),
            ["Transpose", "Add", "Transpose"],
        ),
        (
            lambda x, y: transpose(x, 0, 2, 1) + transpose(y, 1, 0, 2),
            (f32(4, 3, 5), f32(5, 4, 3)),
            ["Transpose", "Transpose", "Add"],
        ),
        (
            lambda x, y: call(Einsum("hls,shp->lhp"), transpose(x, 2, 0, 1), transpose(y, 1, 0, 2)),
            (f32(4, 6, 3), f32(3, 6, 5)),
            ["Einsum"],
        ),
        (lambda x: call(Tanh(), transpose(x, 0, 2, 1)), (X,), ["Transpose", "Tanh"]),
        (lambda x, y: call(MatMul(), transpose(x, 1, 0), y), (f32(4, 3), f32(4, 5)), ["Gemm"]),
        (
            lambda x, y: call(Gemm(trans_b=True), x, transpose(y, 1, 0)),
            (f32(3, 4), f32(4, 5)),
            ["Gemm"],
        ),
    ),
)
def test_eliminate_transposes(
    formula: Formula, types: tuple[TensorType, ...], names: list[str]
) -> None:
    assert op_names(run(EliminateTransposes(), formula, *types)) == names


def reshape(x: Value, *shape: Any) -> Value:
    return call(Reshape(shape), x)


@pytest.mark.parametrize(
    ("formula", "types", "names"),
    rows(
        (lambda x: reshape(reshape(x, 6, Sym("n")), Sym("n"), 6), (X,), ["Reshape"]),
        (lambda x: call(Tanh(), reshape(x, 2, Sym("n"), 3)), (X,), ["Tanh"]),
        (lambda x: reshape(call(Tanh(), reshape(x, 8) * 2.0), 2, 4), (f32(2, 4),), ["Mul", "Tanh"]),
        (lambda x: call(Tanh(), reshape(x, 8)), (f32(2, 4),), ["Reshape", "Tanh"]),
        (
            lambda x: reshape(reshape(x, 1, 4, 2, 3) + weights(x, 1, 4, 1, 3), 4, 2, 3),
            (f32(4, 2, 3),),
            ["Add"],
        ),
        (
            lambda x, y: reshape(
                call(MatMul(), reshape(x, 6, 4, 5), reshape(y, 6, 5, 7)), 2, 3, 4, 7
            ),
            (f32(2, 3, 4, 5), f32(1, 2, 3, 5, 7)),
            ["Reshape", "MatMul"],
        ),
        (
            lambda x, y: reshape(call(MatMul(), reshape(x, 6, 4, 5), y), 2, 3, 4, 7),
            (f32(2, 3, 4, 5), f32(6, 5, 7)),
            ["Reshape", "MatMul", "Reshape"],
        ),
        (
            lambda x: reshape(reshape(x, 1, 4, 3) + weights(x, 2, 4, 3), 8, 3),
            (f32(4, 3),),
            ["Reshape", "Add", "Reshape"],
        ),
    ),
)
def test_eliminate_reshapes(
    formula: Formula, types: tuple[TensorType, ...], names: list[str]
) -> None:
    assert op_names(run(EliminateReshapes(), formula, *types)) == names


def test_fold_constants_respects_size() -> None:
    def formula(x: Value) -> Value:
        filled = Value(x.build, x.build.emit(Full((64, 64), 1.5, F32)))
        return x + filled * 2.0

    assert op_names(run(FoldConstants(), formula, f32(64))) == ["Add"]
    small = FoldConstants(max_bytes=1024)
    assert op_names(run(small, formula, f32(64))) == ["Full", "Mul", "Add"]
    assert op_names(run(FoldConstants(limit=1), formula, f32(64))) == ["Mul", "Add"]


def test_folding_a_whole_output() -> None:
    build = GraphBuilder()
    build.input("x", f32(2))
    y = build.emit(Exp(), build.constant(np.ones(3, np.float32)), name="y")
    graph = build.build([y])
    after = FoldConstants()(graph)
    assert not after.nodes and list(after.constants) == ["y"]
    assert_same_meaning(graph, after)


def test_common_subexpressions_keep_outputs_and_merge_constants() -> None:
    build = GraphBuilder()
    x = build.input("x", f32(2))
    a, b = build.emit(Exp(), x, name="a"), build.emit(Exp(), x, name="b")
    c = build.emit(Sub(), b, a, name="c")
    graph = build.build([a, b, c])
    after = CommonSubexpressions()(graph)
    assert_same_meaning(graph, after)
    assert after.nodes[-1].inputs == ("a", "a")
    assert len(DeadCode()(after).nodes) == 3
