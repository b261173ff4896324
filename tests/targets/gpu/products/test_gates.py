"""Gated layers: both products and what combines them are one kernel, in whatever order a model has
them, with biases, of named rows, and by weights of few bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from kernel_runs import interpreted, run_scheduled
from machines import chosen_options

from modelcc.driver import NOWHERE, pipeline, target_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Sym
from modelcc.ir.program import Launch, Program
from modelcc.ir.types import BF16, F16, F32, U8, Array, DType, TensorType
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.elementwise import Erf, Sigmoid
from modelcc.ops.matmul import MatMul
from modelcc.ops.packed_matmul import PackedMatMul, packed_words
from modelcc.ops.slicing import Slice
from modelcc.passes.program.place_transfers import side_of
from modelcc.pipeline import before_block, run_stages

TARGETS = ["cuda:sm_80", "cuda:sm_90a", "opencl", "webgpu", "metal"]
ROWS = {"batch": 2, "sequence": 5}


def weight(x: Value, name: str, *shape: int) -> Value:
    """A constant of the type of ``x``."""
    rng = np.random.default_rng(len(name) + sum(map(ord, name)))
    data = rng.uniform(-0.3, 0.3, shape).astype(x.type.dtype.numpy)
    return Value(x.build, x.build.constant(data))


def silu(x: Value) -> Value:
    return x * of(Sigmoid(), x)


def gelu(x: Value) -> Value:
    return x * 0.5 * (of(Erf(), x * 0.70710678) + 1.0)


def swiglu(x: Value) -> Value:
    gate, up = (of(MatMul(), x, weight(x, name, 64, 40)) for name in ("gate", "up"))
    return silu(gate) * up


def geglu(x: Value) -> Value:
    """Biases, and the other product first."""
    up, gate = (
        of(MatMul(), x, weight(x, name, 64, 40)) + weight(x, f"{name} bias", 40)
        for name in ("up", "gate")
    )
    return up * gelu(gate)


def packed(x: Value) -> Value:
    """Weights of 4 bits."""

    def product(name: str) -> Value:
        rng = np.random.default_rng(ord(name[0]))
        words = packed_words(rng.integers(0, 16, (64, 40)), 4, 32)
        scale = rng.uniform(0.01, 0.02, (2, 40)).astype(np.float32)
        zero = np.full((2, 40), 8, U8.numpy)
        rest = (Value(x.build, x.build.constant(c)) for c in (words, scale, zero))
        return of(PackedMatMul(4), x, *rest)

    return silu(product("gate")) * product("up")


def halves(x: Value) -> Value:
    """Both weights in one, and a bias."""
    both = of(MatMul(), x, weight(x, "both", 64, 80)) + weight(x, "bias", 80)
    *rows, _ = both.type.shape
    zeros, ones = (0,) * len(rows), (1,) * (len(rows) + 1)
    up, gate = (of(Slice((*zeros, n), (*rows, 40), ones), both) for n in (0, 40))
    return silu(gate) * up


MODELS = (swiglu, geglu, packed, halves)


def graph_of(model: Callable[[Value], Value], rows: tuple[int | Sym, ...], dtype: DType) -> Graph:
    build = GraphBuilder()
    x = Value(build, build.input("x", TensorType((*rows, 64), dtype)))
    return build.build([model(x).name])


@pytest.mark.share(3, "model", "rows", "dtype", "target")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("rows", [(1,), (2, 3), (24,), (Sym("batch"), Sym("sequence"))], ids=str)
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_a_gate_is_one_kernel(
    model: Callable[[Value], Value], rows: tuple[int | Sym, ...], dtype: DType, target: str
) -> None:
    options = chosen_options(target=target)
    stages = before_block(pipeline(target_of(options), options, NOWHERE), "loop")
    program = run_stages(stages, graph_of(model, rows, dtype))
    assert isinstance(program, Program)
    assert sum(isinstance(step, Launch) for step in program.steps) == 1
    assert {side_of(callee) for callee in program.callees} == {"device"}
    shape = [ROWS[r.name] if isinstance(r, Sym) else r for r in rows]
    x: Array = np.random.default_rng(0).uniform(-1, 1, (*shape, 64)).astype(dtype.numpy)
    sizes = {name: ROWS[name] for name in program.dims}
    (got,) = run_scheduled(program, interpreted(program), {"x": x}, sizes).values()
    known = graph_of(model, tuple(shape), dtype)
    (wanted,) = interpret(known, {"x": x}).values()
    tolerance = 1e-5 if dtype == F32 else 3e-2
    found, exact = got.astype(np.float32), wanted.astype(np.float32)
    np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance)
