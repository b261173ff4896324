"""Checks of kernels that change states are steps before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import modelcc
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_states import with_states
from modelcc.ir.program import CopyTensor, Launch, Program
from modelcc.ir.types import F32, I64, TensorType
from modelcc.ops.elementwise import Add
from modelcc.ops.gather_nd import ScatterND
from modelcc.ops.reduce import ReduceSum
from modelcc.passes.program.check_first import check_first
from tests.test_states import stages

CACHE, ROW = TensorType((2, 64, 4), F32), TensorType((1, 2, 4), F32)


def counting(late: bool = True, kept: bool = True) -> Graph:
    """Rows put one after the other: where a counter is that the model keeps, which is changed
    before (``late``) or behind."""
    build = GraphBuilder()
    cache, row = build.input("cache", CACHE), build.input("row", ROW)
    count = build.input("count", TensorType((1, 1), I64))
    more = build.emit(Add(), count, build.constant(np.ones((1, 1), np.int64)))
    after = build.emit(ScatterND(axis=1), cache, more if late else count, row)
    seen = build.emit(Add(), after, after)
    graph = build.build([seen, after, more])
    first = {"count": np.full((1, 1), -1 if late else 0)}
    return with_states(graph, {"cache": ("cache", after), "count": ("count", more)}, first) \
        if kept else graph  # fmt: skip


def programs(graph: Graph) -> tuple[Program, Program]:
    """Before, and once memory is planned."""
    made = stages(graph)
    return made["legalize"], made["plan_memory"]


def test_a_kernel_with_checks_becomes_two() -> None:
    before, _ = programs(counting())
    (update,) = (s for s in before.steps if isinstance(s, Launch) and s.bounds)
    found = check_first(before)
    checks = next(s for s in found.steps if isinstance(s, Launch) and s.bounds)
    place = found.steps.index(checks)
    rest: Any = found.steps[place + 1]
    assert checks.bounds == update.bounds and not rest.bounds
    assert len(checks.arguments) == 1 and rest.arguments == update.arguments
    assert rest.in_place == update.in_place
    assert {c.name for c in found.callees} == {
        s.callee for s in found.steps if isinstance(s, Launch)
    }


def test_without_states_nothing_changes() -> None:
    before, _ = programs(counting(kept=False))
    assert check_first(before) is before


@pytest.mark.parametrize("late", [False, True])
def test_the_cache_stays_where_it_is_whatever_counts(late: bool) -> None:
    """What counts is copied, if it is checked when it is there: it is small."""
    _, planned = programs(counting(late))
    copied = [s.target for s in planned.steps if isinstance(s, CopyTensor)]
    assert [planned.states[name] for name in copied] == (["count"] if late else [])
    net = modelcc.compile(counting(late), cache=None)
    for call in range(64):
        net(np.full((1, 2, 4), call, np.float32))
    before = net.states
    with pytest.raises(modelcc.RunError, match="64"):
        net(np.zeros((1, 2, 4), np.float32))
    np.testing.assert_array_equal(before["cache"][1, :, 0], np.arange(64))
    for name, array in net.states.items():
        np.testing.assert_array_equal(array, before[name])


def twice() -> Graph:
    """A row put at a place of a cache, and what is read there then put at another place."""
    build = GraphBuilder()
    cache, row = build.input("cache", CACHE), build.input("row", ROW)
    places = [build.input(name, TensorType((1, 1), I64)) for name in ("first", "second")]
    before = build.emit(ScatterND(axis=1), cache, places[0], row)
    seen = build.emit(ReduceSum((0, 1)), before)
    after = build.emit(ScatterND(axis=1), before, places[1], build.emit(Add(), row, seen))
    graph = build.build([build.emit(ReduceSum((1,)), after), after])
    return with_states(graph, {"cache": ("cache", after)}, {})


def test_two_writes_are_where_the_cache_is_and_checked_before_the_first() -> None:
    _, program = programs(twice())
    assert not [s for s in program.steps if isinstance(s, CopyTensor)]
    net = modelcc.compile(twice(), cache=None)
    row = np.ones((1, 2, 4), np.float32)
    place = [np.full((1, 1), n) for n in (3, 5, 64)]
    np.testing.assert_array_equal(net(row, *place[:2]), np.full((2, 1, 4), 4))
    before = net.states["cache"]
    assert before[0, 3, 0] == 1 and before[0, 5, 0] == 3
    with pytest.raises(modelcc.RunError, match="64"):
        net(row, place[0], place[2])
    np.testing.assert_array_equal(net.states["cache"], before)
