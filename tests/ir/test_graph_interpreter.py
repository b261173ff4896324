"""The graph interpreter: named dimensions, lifetimes, observation, faults."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.index import Range, Sym
from modelcc.ir.op import Op
from modelcc.ir.types import F32, Array, TensorType
from tests.ir.tiny_ops import Add, Everything, Neg, Reshape, Scale

N, M = Sym("n"), Sym("m")


def model() -> Graph:
    build = GraphBuilder("net", {"n": Range(1, 8)})
    x = build.input("x", TensorType((N, 2 * M + 1), F32))
    y = build.input("y", TensorType((N * (2 * M + 1),), F32))
    z = build.emit(Add(), build.emit(Reshape((N * (2 * M + 1),)), x), y, name="z")
    return build.build([z, build.emit(Neg(), z)])


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def test_dimensions_are_solved_for() -> None:
    out = interpret(model(), {"x": ones(3, 5), "y": ones(15)})
    np.testing.assert_array_equal(out["z"], 2 * ones(15))
    assert list(out) == ["z", "neg"]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (ones(3, 5), ones(14), "input 'y', axis 0: expected n + 2*m*n (with n = 3, m = 2), got 14"),
        (ones(3, 4), ones(12), "input 'x', axis 1: 4 is no value of 2*m + 1"),
        (ones(9, 5), ones(45), "dimension 'n' is 9, outside of 1..8"),
        (ones(3), ones(15), "input 'x' must be f32[n, 2*m + 1], but the array has shape [3]"),
        (np.ones((3, 5)), ones(15), "input 'x' must be f32, but the array is f64"),
    ],
)
def test_feeds_that_do_not_fit(x: Array, y: Array, message: str) -> None:
    with pytest.raises(ModelError) as caught:
        interpret(model(), {"x": x, "y": y})
    assert message in str(caught.value)


def test_missing_and_unknown_feeds() -> None:
    with pytest.raises(ModelError, match="input 'y' is not given; 'net' takes x, y"):
        interpret(model(), {"x": ones(3, 5)})
    with pytest.raises(ModelError, match="no input 'w'"):
        interpret(model(), {"x": ones(3, 5), "y": ones(15), "w": ones(1)})


def test_observer_sees_every_node_and_dead_values_are_dropped() -> None:
    build = GraphBuilder()
    x = build.input("x", TensorType((4,), F32))
    for _ in range(4):
        x = build.emit(Scale(2.0), x)
    seen: list[weakref.ref[Array]] = []
    alive: list[int] = []

    def observe(node: Node, results: tuple[Array, ...]) -> None:
        seen.extend(weakref.ref(r) for r in results)
        alive.append(sum(r() is not None for r in seen))

    out = interpret(build.build([x]), {"x": ones(4)}, observe)
    np.testing.assert_array_equal(out[x], 16 * ones(4))
    assert len(alive) == 4 and max(alive) <= 3


def test_attributes_are_bound() -> None:
    op = Everything(index=N + 1, nested=((N, 2), (M,)))
    assert op.substitute({"n": 4}) == Everything(index=5, nested=((4, 2), (M,)))


def test_a_reference_that_breaks_its_type_is_found() -> None:
    @dataclass(frozen=True)
    class Liar(Op):
        def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
            return (TensorType((2,), F32),)

        def reference(self, *inputs: Any) -> Any:
            return np.zeros(3, np.float32)

    build = GraphBuilder()
    y = build.emit(Liar(), build.input("x", TensorType((), F32)), source=("here",))
    with pytest.raises(ModelError, match=r"here: mcc\.Liar computed f32\[3\] for 'liar'"):
        interpret(build.build([y]), {"x": np.float32(0)})  # type: ignore[dict-item]
