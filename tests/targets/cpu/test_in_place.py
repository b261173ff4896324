"""Updates of states that are written over what they read, several in one kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_states import with_states
from modelcc.ir.types import F16, F32, F64, DType, TensorType
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import Greater, where
from modelcc.ops.elementwise import Exp, Max, Sqrt
from modelcc.ops.padding import Pad
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.shape import Transpose

Update = Callable[[Value, Value, Value], tuple[Value, Value]]
"""Next values of two states, from these and a gradient."""


def momentum(w: Value, m: Value, g: Value) -> tuple[Value, Value]:
    after = m * 0.9 + g
    return w - after * 0.1, after


def nesterov(w: Value, m: Value, g: Value) -> tuple[Value, Value]:
    """The old moment is read where the new one may be already."""
    after = m * 0.9 + g
    return w + m * 0.09 - after * 0.19, after


def both_ways(w: Value, m: Value, g: Value) -> tuple[Value, Value]:
    """Each from both: elements of both are read before one is written."""
    return w + m * 0.5 + g, m - w * 0.25


def clipped(w: Value, m: Value, g: Value) -> tuple[Value, Value]:
    after = of(Max(), m, g * g)
    step = g / (of(Sqrt(), after) + 1.0)
    return where(of(Greater(), w, w.lift(0.0)), w - step, w + m), after


def normalised(w: Value, m: Value, g: Value) -> tuple[Value, Value]:
    """By the sum of each row, which is walked before the row is written."""
    power = of(Exp(), w)
    return power / of(ReduceSum((w.type.rank - 1,), True), power) + g, m + w


def moved(w: Value, m: Value, g: Value) -> tuple[Value, Value]:
    """Of each row what is one to the left: not where it was."""
    rank = w.type.rank
    left = Pad((*(0,) * (rank - 1), 1), (*(0,) * (rank - 1), -1))
    return of(left, w) + g, m + of(left, m) * 0.5


def turned(w: Value, m: Value, g: Value) -> tuple[Value, Value]:
    """Of a square what is across the diagonal."""
    across = Transpose((*range(w.type.rank - 2), w.type.rank - 1, w.type.rank - 2))
    return of(across, w) + g, m + w


UPDATES: tuple[tuple[Update, bool], ...] = (
    (momentum, True), (nesterov, True), (both_ways, False), (clipped, True), (normalised, False),
    (moved, False), (turned, False),
)  # fmt: skip
"""Updates, and whether both states can be where they were in all shapes."""
SHAPES = ((1, 1), (7, 7), (16, 16), (33, 33), (3, 2, 2))
DTYPES = (F32, F64, F16)


def step(update: Update, type: TensorType) -> Graph:
    build = GraphBuilder()
    w, m, g = (Value(build, build.input(name, type)) for name in "wmg")
    after = [build.emit(Exp(), g.name), *(value.name for value in update(w, m, g))]
    return with_states(build.build(after), {"w": ("w", after[1]), "m": ("m", after[2])})


@pytest.mark.share(3, "dtype", "shape", "update")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("update", "in_place"), UPDATES, ids=lambda u: getattr(u, "__name__", ""))
def test_steps_follow_the_reference(
    update: Update, in_place: bool, shape: tuple[int, ...], dtype: DType
) -> None:
    graph = step(update, TensorType(shape, dtype))
    net = modelcc.compile(graph, cache=None, threads=2)
    rng = np.random.default_rng(0)
    now = {name: rng.standard_normal(shape).astype(dtype.numpy) for name in "wm"}
    net.reset(now)
    for _ in range(3):
        g = rng.standard_normal(shape).astype(dtype.numpy)
        _, w, m = (interpret(graph, {**now, "g": g})[name] for name in graph.outputs)
        now = {"w": w, "m": m}
        net(g)
        for name, array in net.states.items():
            tolerance = 2e-2 if dtype == F16 else 1e-5
            np.testing.assert_allclose(
                array.astype(np.float64), now[name].astype(np.float64), tolerance, tolerance
            )
        now = net.states
    assert not in_place or all(state.in_place for state in net.report().states)
