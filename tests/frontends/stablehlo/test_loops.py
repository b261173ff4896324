"""Scans become loops that take and stack slices; what they leave as it is, is no state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

jax: Any = pytest.importorskip("jax")

import modelcc.jax  # noqa: E402
from modelcc.frontends.stablehlo import import_stablehlo  # noqa: E402
from modelcc.frontends.stablehlo.frontend import LoweredModule  # noqa: E402
from modelcc.ops.control import Loop  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
WEIGHTS, ROWS = np.ones((2, 2), np.float32), np.ones((5, 2), np.float32)


def totals(w: Any, xs: Any, reverse: bool = False) -> Any:
    def cell(h: Any, x: Any) -> Any:
        h = h @ w + x
        return h, h.sum()

    return jax.lax.scan(cell, jax.numpy.zeros(2), xs, reverse=reverse)


def loops(function: Any, *args: Any) -> list[Loop]:
    lowered = jax.jit(function).trace(*args).lower(lowering_platforms=("cpu",))
    graph = import_stablehlo(LoweredModule(lowered.compiler_ir("stablehlo")))
    return [node.op for node in graph.nodes if isinstance(node.op, Loop)]


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_carries_its_own_state_alone(reverse: bool) -> None:
    (loop,) = loops(lambda w, xs: totals(w, xs, reverse), WEIGHTS, ROWS)
    assert (loop.trips, loop.states, loop.conditional) == (5, 1, False)
    assert (loop.axes, loop.backwards) == ((0,), (reverse,))


def test_a_slice_that_is_written_twice_or_read_is_a_state() -> None:
    def filled(x: Any) -> Any:
        def step(i: Any, ys: Any) -> Any:
            return jax.lax.dynamic_update_slice(ys, ys[:1] + x, (i,))

        return jax.lax.fori_loop(0, 5, step, jax.numpy.zeros(5))

    (loop,) = loops(filled, np.float32(2))
    assert (loop.states, loop.axes) == (1, ())


def test_a_loop_on_data_goes_on_while_it_is_told() -> None:
    (loop,) = loops(
        lambda x: jax.lax.while_loop(lambda v: v < 9, lambda v: v * 2, x), np.float32(1)
    )
    assert (loop.trips, loop.states, loop.conditional) == (None, 2, True)


def test_a_loop_that_only_counts_is_none() -> None:
    def counted(x: Any) -> Any:
        return jax.lax.fori_loop(0, 7, lambda i, n: n + 2, 3) + x

    assert loops(counted, np.int32(1)) == []


def test_a_loop_of_constants_keeps_its_shape() -> None:
    def constant() -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, x: x * x[0] + i, jax.numpy.ones(2))

    assert loops(constant) == []
    np.testing.assert_array_equal(modelcc.jax.jit(constant, cache=None)(), constant())
