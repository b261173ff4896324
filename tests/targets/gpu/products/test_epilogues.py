"""What follows a product point by point is in its kernel, however often its result is read."""

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
from modelcc.ir.program import Launch, Program
from modelcc.ir.types import BF16, F16, F32, Array, DType, TensorType
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.conv import Conv
from modelcc.ops.elementwise import Tanh
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.ops.reduce import ReduceMean
from modelcc.ops.shape import Reshape
from modelcc.passes.program.place_transfers import side_of
from modelcc.pipeline import before_block, run_stages

TARGETS = ["cuda:sm_80", "cuda:sm_90a", "opencl", "webgpu", "metal"]


def bend(x: Value) -> Value:
    """Like a gelu, and none: ``x`` is read six times."""
    return x * 0.5 * (of(Tanh(), (x + x * x * x * 0.25) * 0.75) + 1.0)


def gemm(a: Value, b: Value, bias: Value) -> Value:
    """Rows of two axes as one, and back."""
    rows = of(Gemm(), of(Reshape((6, 64)), a), b, bias)
    return bend(of(Reshape((2, 3, 32)), rows)) + of(Reshape((2, 3, 32)), rows)


def matmul(a: Value, b: Value, bias: Value) -> Value:
    """Rows of two axes, of which what follows has one."""
    return bend(of(Reshape((6, 32)), of(MatMul(), a, b) + bias))


def convolution(x: Value, w: Value, bias: Value) -> Value:
    """An image, and the mean of each channel, which is a kernel of its own."""
    image = bend(of(Conv((1, 1), (1, 1), (1, 1), (1, 1)), x, w, bias))
    return of(ReduceMean((2, 3), keepdims=False), image)


Model = Callable[[Value, Value, Value], Value]
MODELS: list[tuple[Model, tuple[tuple[int, ...], ...], int]] = [
    (gemm, ((2, 3, 64), (64, 32), (32,)), 1),
    (matmul, ((2, 3, 64), (64, 32), (32,)), 1),
    (convolution, ((2, 16, 4, 5), (32, 16, 3, 3), (32,)), 2),
]


def graph_of(model: Model, shapes: tuple[tuple[int, ...], ...], dtype: DType) -> Graph:
    build = GraphBuilder()
    values = [
        Value(build, build.input(name, TensorType(shape, dtype)))
        for name, shape in zip("abc", shapes, strict=True)
    ]
    return build.build([model(*values).name])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [F32, F16, BF16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    ("model", "shapes", "kernels"), MODELS, ids=lambda part: getattr(part, "__name__", "")
)
def test_a_product_and_what_follows_are_one_kernel(
    model: Model, shapes: tuple[tuple[int, ...], ...], kernels: int, dtype: DType, target: str
) -> None:
    graph = graph_of(model, shapes, dtype)
    options = chosen_options(target=target)
    stages = before_block(pipeline(target_of(options), options, NOWHERE), "loop")
    program = run_stages(stages, graph)
    assert isinstance(program, Program)
    launched = [step.callee for step in program.steps if isinstance(step, Launch)]
    assert sum("turn" not in name for name in launched) == kernels, "but for copies of operands"
    assert {side_of(callee) for callee in program.callees} == {"device"}
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {
        n: rng.uniform(-0.3, 0.3, shape).astype(dtype.numpy)
        for n, shape in zip("abc", shapes, strict=True)
    }
    found = run_scheduled(program, interpreted(program), feeds, {})
    single = {n: v.astype(np.float32) for n, v in feeds.items()}
    wanted = interpret(graph_of(model, shapes, F32), single)
    (got,), (exact,) = found.values(), wanted.values()
    tolerance = 1e-5 if dtype == F32 else 2e-2
    np.testing.assert_allclose(got.astype(np.float32), exact, rtol=tolerance, atol=tolerance)
