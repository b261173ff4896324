"""States of models, from graphs built by hand to sessions: updated in place, or not at all."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from machines import chosen_options

import modelcc
from modelcc.driver import pipeline, target_of
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_states import with_states
from modelcc.ir.index import Index, Sym
from modelcc.ir.program import CopyTensor, Program
from modelcc.ir.tensor import TensorProgram
from modelcc.ir.types import F32, I64, TensorType
from modelcc.levels.interpretation import interpret_level
from modelcc.levels.text import constants_of, level_text, parse_level, verify_level
from modelcc.ops.arithmetic import Value, of
from modelcc.ops.comparison import Greater
from modelcc.ops.control import If
from modelcc.ops.elementwise import Add, Identity, Mul, Sub, Tanh
from modelcc.ops.iteration import Iteration, iterated
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceSum
from modelcc.ops.registry import dialects
from modelcc.ops.time_axis import CacheUpdate
from modelcc.pipeline import run_stages
from modelcc.targets.base import BuildConfig

RNG = np.random.default_rng(0)


def f32(*shape: Index) -> TensorType:
    return TensorType(shape, F32)


def momentum() -> Graph:
    """``m' = 0.9 m + g``, ``w' = w - rate m'``, where ``g`` is the gradient of half the square of
    ``w x - y``; the error before that is returned."""
    b = GraphBuilder("momentum")
    x, y, rate = (b.input(n, t) for n, t in (("x", f32(8, 4)), ("y", f32(8, 4)), ("rate", f32())))
    w, m = b.input("w", f32(8, 8)), b.input("m", f32(8, 8))
    error = b.emit(Sub(), b.emit(MatMul(), w, x), y, name="error")
    transposed = b.constant(np.ones((4, 8), np.float32))
    g = b.emit(MatMul(), error, transposed)
    after = b.emit(Add(), b.emit(Mul(), m, b.constant(0.9)), g, name="m_after")
    moved = b.emit(Sub(), w, b.emit(Mul(), after, rate), name="w_after")
    late = b.emit(MatMul(), w, b.constant(np.full((8, 1), 2, np.float32)), name="late")
    states = {"w": ("w", moved), "m": ("m", after)}
    return with_states(b.build([error, moved, after, late]), states, {"w": np.eye(8, dtype="f")})


def follow(state: dict[str, Any], x: Any, y: Any, rate: Any) -> tuple[Any, Any]:
    w, m = state["w"], state["m"]
    error = w @ x - y
    state["m"] = m * np.float32(0.9) + error @ np.ones((4, 8), np.float32)
    state["w"] = w - state["m"] * rate
    return error, w @ np.full((8, 1), 2, np.float32)


def decoder(length: int = 64) -> Graph:
    """A cache with a row put at a place from memory, and what is then in it as sums."""
    b = GraphBuilder("decoder")
    row, place = b.input("row", f32(1, 1, 16)), b.input("place", TensorType((1,), I64))
    cache = b.input("cache", f32(1, length, 16))
    after = b.emit(CacheUpdate(1), cache, row, place)
    sums = b.emit(MatMul(), after, b.constant(np.ones((16, 1), np.float32)), name="sums")
    return with_states(b.build([sums, after]), {"cache": ("cache", after)})


def exchange() -> Graph:
    """Two states that change places, a third that is one as it was, and one that stays."""
    b = GraphBuilder("exchange")
    x = b.input("x", f32(3))
    names = [b.input(n, f32(3)) for n in "abcd"]
    a, c, stays = names[0], names[2], names[3]
    once = b.emit(Add(), a, x, name="once")
    graph = b.build(["b", once, "a", b.emit(Identity(), stays, name="same"), c])
    pairs = {"a": ("a", "b"), "b": ("b", once), "c": ("c", "a"), "d": ("d", "same")}
    return with_states(graph, pairs, {"b": np.ones(3, np.float32)})


def looped() -> Graph:
    """A state that a loop begins with and ends with, and one that is read in the loop."""
    b = GraphBuilder("looped")
    h, c, x = (Value(b, b.input(name, f32(4))) for name in "hcx")

    def body(at: Iteration, old: list[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        return [old[0] * 0.5 + at["c"]], [old[0]]

    last, rows = iterated(b, 5, [h], {"c": c}, body, (0,))
    after = c + last * x
    states = {"h": ("h", last.name), "c": ("c", after.name)}
    return with_states(b.build([rows.name, last.name, after.name]), states)


def gated() -> Graph:
    """A state that a loop updates where it is, beside one that it cannot."""
    b = GraphBuilder("gated")
    h, c = (Value(b, b.input(name, f32(1, 4))) for name in "hc")
    w = Value(b, b.constant(np.full((4, 4), 0.25, np.float32)))

    def body(at: Iteration, old: list[Value]) -> tuple[Sequence[Value], Sequence[Value]]:
        sums = of(MatMul(), old[0], at["w"])
        cell = old[1] * 0.5 + sums
        return [of(Tanh(), cell), cell], [cell]

    last, cell, rows = iterated(b, 4, [h, c], {"w": w}, body, (0,))
    states = {"h": ("h", last.name), "c": ("c", cell.name)}
    return with_states(b.build([rows.name, last.name, cell.name]), states)


def branched() -> Graph:
    """A state that a branch changes, or not."""
    b = GraphBuilder("branched")
    h, x = b.input("h", f32(4)), b.input("x", f32(4))
    sides: list[Graph] = []
    for name in ("then", "other"):
        side = GraphBuilder(name)
        state, given = side.input("h", f32(4)), side.input("x", f32(4))
        op, operands = (Add(), (state, given)) if name == "then" else (Identity(), (state,))
        sides.append(side.build([side.emit(op, *operands)]))
    total = Value(b, b.emit(ReduceSum((0,), False), x))
    going = of(Greater(), total, total.lift(0.0))
    after = b.emit(If(*sides), going.name, h, x)
    return with_states(b.build([b.emit(Mul(), after, x), after]), {"h": ("h", after)})


def stages(graph: Graph) -> dict[str, Any]:
    """What each stage makes, by its name."""
    options = chosen_options(threads=1)
    made: dict[str, Any] = {}
    names = pipeline(target_of(options), options, BuildConfig())
    kept = [stage for stage in names if stage.block not in ("emit", "build", "package")]
    run_stages(kept, graph, lambda run: made.update({run.stage.name: run.after}))
    return made


def copies(graph: Graph) -> list[str]:
    """What is copied at the end."""
    program = stages(graph)["plan_memory"]
    assert isinstance(program, Program)
    return [step.target for step in program.steps if isinstance(step, CopyTensor)]


def level_of(program: Any) -> str:
    if isinstance(program, Program):
        return "launches" if program.placement is None else "program"
    return "tensor" if isinstance(program, TensorProgram) else "graph"


FEEDS: dict[str, Any] = {
    "momentum": {
        "x": RNG.standard_normal((8, 4), np.float32), "y": RNG.standard_normal((8, 4), np.float32),
        "rate": np.full((), 0.01, np.float32),
        "w": RNG.standard_normal((8, 8), np.float32), "m": RNG.standard_normal((8, 8), np.float32),
    },
    "decoder": {
        "row": np.ones((1, 1, 16), np.float32), "place": np.array([5]),
        "cache": RNG.standard_normal((1, 64, 16), np.float32),
    },
    "exchange": {n: RNG.standard_normal(3, np.float32) for n in "xabcd"},
    "looped": {n: RNG.standard_normal(4, np.float32) for n in "hcx"},
    "gated": {n: RNG.standard_normal((1, 4), np.float32) for n in "hc"},
    "branched": {n: RNG.standard_normal(4, np.float32) for n in "hx"},
}  # fmt: skip
GRAPHS = {
    "momentum": momentum,
    "decoder": decoder,
    "exchange": exchange,
    "looped": looped,
    "gated": gated,
    "branched": branched,
}


@pytest.mark.parametrize("name", GRAPHS)
def test_every_stage_means_the_same_and_reads_back(name: str) -> None:
    graph, feeds = GRAPHS[name](), FEEDS[name]
    before = {n: a.copy() for n, a in feeds.items()}
    wanted = interpret_level(graph, feeds, {})
    for stage, program in stages(graph).items():
        for found, right in zip(interpret_level(program, feeds, {}), wanted, strict=True):
            np.testing.assert_allclose(found, right, 1e-5, 1e-5, err_msg=stage)
        verify_level(program)
        text, level = level_text(program), level_of(program)
        assert level_text(parse_level(level, text, constants_of(program), dialects())) == text
    for n, array in feeds.items():
        np.testing.assert_array_equal(array, before[n])


def test_updates_are_in_place_where_they_can_be() -> None:
    assert not copies(momentum()) and not copies(decoder())
    assert copies(exchange())[1:3] == ["b.kept", "a.kept"]


def test_training() -> None:
    net = modelcc.compile(momentum(), cache=None)
    assert [s.name for s in net.inputs] == ["x", "y", "rate"]
    assert [s.name for s in net.outputs] == ["error", "late"]
    now: dict[str, Any] = {"w": np.eye(8, dtype=np.float32), "m": np.zeros((8, 8), np.float32)}
    for _ in range(5):
        x, y = RNG.standard_normal((2, 8, 4), np.float32)
        rate = np.full((), 0.01, np.float32)
        for a, b in zip(net(x, y, rate), follow(now, x, y, rate), strict=True):
            np.testing.assert_allclose(a, b, 1e-4, 1e-5)
        for name, array in net.states.items():
            np.testing.assert_allclose(array, now[name], 1e-4, 1e-5)


def test_what_was_handed_out_never_changes() -> None:
    net = modelcc.compile(momentum(), cache=None)
    feeds = {name: FEEDS["momentum"][name] for name in ("x", "y", "rate")}
    first = net.states
    net(feeds)
    second = net.states
    again = {name: array.copy() for name, array in second.items()}
    net(feeds)
    np.testing.assert_array_equal(first["w"], np.eye(8))
    for name in again:
        np.testing.assert_array_equal(second[name], again[name])


def test_a_failed_call_leaves_states_as_they_were() -> None:
    net = modelcc.compile(decoder(), cache=None)
    for place in range(3):
        net(np.full((1, 1, 16), place + 1, np.float32), np.array([place]))
    before = net.states
    with pytest.raises(modelcc.RunError, match="start 64 is outside of 0 … 63"):
        net(np.ones((1, 1, 16), np.float32), np.array([64]))
    np.testing.assert_array_equal(net.states["cache"], before["cache"])
    assert net.states["cache"][0, :4, 0].tolist() == [1, 2, 3, 0]


def test_states_that_change_places() -> None:
    net = modelcc.compile(exchange(), cache=None)
    now: dict[str, Any] = {n: np.full(3, n == "b", np.float32) for n in "abcd"}
    for _ in range(4):
        x = RNG.standard_normal(3, np.float32)
        net(x)
        now |= {"a": now["b"], "b": now["a"] + x, "c": now["a"]}
        for name, array in net.states.items():
            np.testing.assert_array_equal(array, now[name], err_msg=name)


@pytest.mark.parametrize("name", GRAPHS)
def test_calls_follow_the_reference(name: str) -> None:
    graph = GRAPHS[name]()
    net = modelcc.compile(graph, cache=None)
    assert graph.interface is not None
    kept, feeds = graph.interface.states, FEEDS[name]
    net.reset({n: feeds[state.input] for n, state in kept.items()})
    given = {spec.name: feeds[spec.name] for spec in net.inputs}
    for call in range(4):
        now = {state.input: net.states[n] for n, state in kept.items()}
        if name == "branched":
            given = {"x": feeds["x"] * np.float32(-1) ** call}
        wanted = interpret(graph, {**given, **now})
        found = net.run(given) | {state.output: net.states[n] for n, state in kept.items()}
        assert len(found) == len({*graph.outputs})
        for n, array in found.items():
            np.testing.assert_allclose(array, wanted[n], 1e-5, 1e-5, err_msg=n)


def test_by_names_of_tensors_nothing_of_the_session_changes() -> None:
    """Tools that compare a model with others give and get states as tensors."""
    net = modelcc.compile(decoder(), cache=None)
    feeds = FEEDS["decoder"]
    before = feeds["cache"].copy()
    (state,) = [n for n in net.session.manifest.aliases]
    found = net.session.run(feeds)[state]
    np.testing.assert_array_equal(feeds["cache"], before)
    np.testing.assert_array_equal(found[0, 5], np.ones(16))
    np.testing.assert_array_equal(found[0, :5], before[0, :5])
    assert not net.states["cache"].any()


def test_files_and_copies_have_states_of_their_own(tmp_path: Path) -> None:
    net = modelcc.compile(decoder(), cache=tmp_path / "cache")
    row = np.ones((1, 1, 16), np.float32)
    net(row, np.array([0]))
    net.save(tmp_path / "net.mcc")
    others = [copy.copy(net), pickle.loads(pickle.dumps(net))]
    net(row, np.array([1]))
    loaded = modelcc.load(tmp_path / "net.mcc")
    assert [int(m.states["cache"].sum()) for m in (net, *others, loaded)] == [32, 16, 16, 0]
    net.reset()
    assert not net.states["cache"].any()
    net.reset({"cache": np.ones((1, 64, 16), np.float32)})
    assert net.states["cache"].all()


def test_a_profile_leaves_states_as_they_are() -> None:
    net = modelcc.compile(decoder(), cache=None)
    net(np.ones((1, 1, 16), np.float32), np.array([0]))
    feeds = {name: FEEDS["decoder"][name] for name in ("row", "place")}
    assert net.report(feeds).seconds is not None
    assert net.states["cache"].sum() == 16


BAD = {
    "no output": ({"w": ("x", "y")}, {}, "'y' is no output"),
    "no input": ({"w": ("q", "z")}, {}, "'q', which state 'z' replaces, is no input"),
    "two of one input": ({"a": ("x", "z"), "b": ("x", "v")}, {}, "'x' is replaced by two states"),
    "two of one output": ({"a": ("x", "z"), "b": ("w", "z")}, {}, "that of two states"),
    "types": ({"a": ("x", "u")}, {}, "state 'u' is f32.., but 'x' is f32.3."),
    "size": ({"a": ("n", "m")}, {}, "state 'a', .*, has no fixed size"),
    "first": ({"a": ("x", "z")}, {"a": np.ones(2, np.float32)}, "'a' is .*, but f32.2. at first"),
    "name": ({"a": ("x", "z")}, {"b": np.ones(3, np.float32)}, "there is no state 'b'"),
}


@pytest.mark.parametrize("case", BAD)
def test_states_that_cannot_be(case: str) -> None:
    states, first, message = BAD[case]
    b = GraphBuilder()
    x, w, n = b.input("x", f32(3)), b.input("w", f32(3)), b.input("n", f32(Sym("batch")))
    z, v = b.emit(Add(), x, w, name="z"), b.emit(Sub(), x, w, name="v")
    m, u = b.emit(Add(), n, n, name="m"), b.emit(MatMul(), x, w, name="u")
    b.emit(Mul(), x, w, name="y")
    with pytest.raises(ModelError, match=message):
        with_states(b.build([z, v, m, u]), states, first)
