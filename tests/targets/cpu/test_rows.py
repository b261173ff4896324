"""Row kernels: rows that do not fill their last vector."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_runs import interpreted, native, run_scheduled
from machines import chosen_cpu

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Sym
from modelcc.ir.loop_text import print_functions
from modelcc.ir.program import Program
from modelcc.ir.types import F32, TensorType
from modelcc.ops.attention import Softmax
from modelcc.ops.broadcast import Reshape
from modelcc.ops.elementwise import Add, Mul
from modelcc.ops.matmul import Einsum, MatMul
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.tensor.from_graph import lower_graph
from modelcc.passes.tensor.fuse import FuseKernels
from modelcc.targets.cpu.schedule import schedule_program
from modelcc.targets.llvm.emitter import emit_llvm


def softmax_of(length: int) -> Program:
    make = GraphBuilder()
    x = make.input("x", TensorType((5, length), F32))
    graph = make.build([make.emit(Softmax(axis=1), x)])
    return schedule_program(FuseKernels()(lower_graph(graph)), chosen_cpu())


@pytest.mark.parametrize("length", [15, 16, 17, 33, 49, 50, 61, 65])
def test_softmax_of_any_length(length: int) -> None:
    program = softmax_of(length)
    x = np.random.default_rng(0).standard_normal((5, length)).astype(np.float32)
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    for executor in (interpreted, native):
        found = run_scheduled(program, executor(program), {"x": x}, {})
        (result,) = found.values()
        assert np.abs(result - powers / powers.sum(axis=1, keepdims=True)).max() < 1e-6


@pytest.mark.parametrize("length", [49, 50, 61])
def test_no_masked_store_holds_up_the_next_row(length: int) -> None:
    functions = softmax_of(length).functions
    assert "masked.store" not in emit_llvm([expand_math(f) for f in functions])


def test_a_single_element_left_over_is_a_scalar() -> None:
    assert "mask(" not in print_functions(softmax_of(49).functions)
    assert "mask(2)" in print_functions(softmax_of(50).functions)


def products_of_shared_rows(weights: str, result: str, stored: bool) -> Graph:
    """Rows that a product with ``weights`` reads, and an addition (``stored``: everybody)."""
    make, rng = GraphBuilder(), np.random.default_rng(0)
    sizes = {"j": 5, "h": 2, "d": 16}

    def weight(*shape: int) -> str:
        return make.constant(rng.normal(size=shape).astype(np.float32))

    x = make.input("x", TensorType((Sym("n"), 3, 32), F32))
    rows = make.emit(Reshape((Sym("n"), 3, 2, 16)), make.emit(MatMul(), x, weight(32, 32)))
    shared = make.emit(Mul(), rows, weight())
    moved = make.emit(Add(), shared, weight(2, 16))
    product = make.emit(
        Einsum(f"nihd,{weights}->{result}"), moved, weight(*(sizes[label] for label in weights))
    )
    other = make.emit(Add(), shared, weight(2, 16))
    return make.build([product, other, *([moved] if stored else [])])


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize(
    ("weights", "result"), [("jhd", "nhij"), ("jhd", "nihj"), ("jd", "nihj"), ("dj", "nihj")]
)
def test_what_a_product_reads_is_not_written_over(weights: str, result: str, stored: bool) -> None:
    """A stage that does not have all axes of the product beside it would be computed again for
    each of its results, the second time from what it wrote over its operand."""
    graph = products_of_shared_rows(weights, result, stored)
    net = modelcc.compile(graph, threads=1, cache=None)
    x = np.random.default_rng(1).normal(size=(2, 3, 32)).astype(np.float32)
    found, wanted = net.run({"x": x}), interpret(graph, {"x": x})
    for name in graph.outputs:
        np.testing.assert_allclose(found[name], wanted[name], rtol=0, atol=1e-4)
