"""Gradients of loops keep what they read behind products, where that is less than these."""

from __future__ import annotations

import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.index import Range, Sym
from modelcc.ir.types import F32, TensorType
from modelcc.ops.arithmetic import Add, Mul
from modelcc.ops.loop_history import LoopHistory
from modelcc.ops.matmul import MatMul
from modelcc.ops.slicing import At
from modelcc.ops.transcendental import Exp, Sin, Tanh


def history(*functions: type[Tanh | Sin | Exp], scanned: bool) -> LoopHistory:
    """Of ``h := product of f(h w [+ x[t]])`` over ``functions``."""
    build = GraphBuilder("body", {"t": Range(0, None)})
    h, w = (build.input(n, TensorType(s, F32)) for n, s in (("h", (2, 4)), ("w", (4, 4))))
    sums = build.emit(MatMul(), h, w)
    if scanned:
        x = build.input("x", TensorType((9, 2, 4), F32))
        sums = build.emit(Add(), build.emit(At(0, Sym("t")), x), sums)
    first, *rest = (build.emit(f(), sums) for f in functions)
    for factor in rest:
        first = build.emit(Mul(), first, factor)
    return LoopHistory(build.build([first]), "t", 1)


@pytest.mark.parametrize(
    ("functions", "scanned", "kept"),
    [
        ((Tanh,), False, ["tanh"]),
        ((Tanh,), True, ["tanh"]),
        ((Tanh, Exp), False, ["matmul"]),  # instead of both results
        ((Tanh, Exp), True, ["tanh", "exp"]),  # instead of the product and the slice
        ((Sin,), True, ["add"]),
    ],
)
def test_the_least_that_saves_products_is_kept(
    functions: tuple[type[Tanh | Sin | Exp], ...], scanned: bool, kept: list[str]
) -> None:
    assert history(*functions, scanned=scanned).kept == kept
