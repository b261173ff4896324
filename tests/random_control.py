"""Random models with branches and loops in each other, on values of shape [batch, 4]."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.index import DIM, Bounds, Range, Sym
from modelcc.ir.types import F32, TensorType
from modelcc.ops.arithmetic import Add, Mul, Sub
from modelcc.ops.comparison import Greater, Less
from modelcc.ops.control import At, If, Loop
from modelcc.ops.generate import Indices
from modelcc.ops.matmul import MatMul
from modelcc.ops.reduce import ReduceMean
from modelcc.ops.transcendental import Tanh

BATCH = Sym("batch")
ROWS = TensorType((BATCH, 4), F32)
WEIGHTS = np.random.default_rng(0).normal(size=(3, 4, 4)).astype(np.float32) / 2


@dataclass(frozen=True)
class _Context:
    """How to draw, how deep in other bodies, and bounds of what is known there."""

    draw: Any
    depth: int
    dims: Bounds


def _value(at: _Context, build: GraphBuilder, values: list[str]) -> str:
    """One more value."""
    kinds = ["add", "mul", "sub", "tanh", "matmul"]
    kinds += ["counter"] if at.depth else []
    kinds += ["if", "loop", "while"] if at.depth < 2 else []
    x, y = (at.draw(st.sampled_from(values)) for _ in range(2))
    match at.draw(st.sampled_from(kinds)):
        case "add":
            return build.emit(Add(), x, y)
        case "sub":
            return build.emit(Sub(), x, y)
        case "mul":
            return build.emit(Tanh(), build.emit(Mul(), x, y))
        case "tanh":
            return build.emit(Tanh(), x)
        case "matmul":
            weights = build.constant(WEIGHTS[at.draw(st.integers(0, 2))])
            return build.emit(Tanh(), build.emit(MatMul(), x, weights))
        case "counter":
            known = [name for name in at.dims if name != "batch"]
            step = Sym(at.draw(st.sampled_from(known or ["batch"])))
            return build.emit(Add(), x, build.emit(Indices((step,), (), F32)))
        case "if":
            return _branch(at, build, values)
        case "while":
            return _loop(at, build, values, conditional=True)
        case _:
            return _loop(at, build, values, conditional=False)


def _condition(build: GraphBuilder, x: str, op: Any = None) -> str:
    mean = build.emit(ReduceMean((0, 1), False), x)
    return build.emit(op or Greater(), mean, build.constant(0.1))


def _inner(
    at: _Context, count: int, counter: str | None
) -> tuple[_Context, GraphBuilder, list[str]]:
    more = {} if counter is None else {counter: Range(0, None)}
    inside = _Context(at.draw, at.depth + 1, {**at.dims, **more})
    build = GraphBuilder("body", inside.dims)
    return inside, build, [build.input(f"p{n}", ROWS) for n in range(count)]


def _grown(at: _Context, build: GraphBuilder, values: list[str]) -> list[str]:
    for _ in range(at.draw(st.integers(1, 3))):
        values.append(_value(at, build, values))
    return values


def _picked(at: _Context, values: list[str], count: int) -> list[str]:
    return [at.draw(st.sampled_from(values)) for _ in range(count)]


def _branch(at: _Context, build: GraphBuilder, values: list[str]) -> str:
    captured = _picked(at, values, at.draw(st.integers(1, 3)))
    results = at.draw(st.integers(1, 2))
    bodies: list[Graph] = []
    for _ in range(2):
        inside, inner, known = _inner(at, len(captured), None)
        bodies.append(inner.build(_picked(at, _grown(inside, inner, known), results)))
    condition = _condition(build, at.draw(st.sampled_from(values)))
    names = build.add(If(*bodies), condition, *captured)
    return at.draw(st.sampled_from(names))


def _loop(at: _Context, build: GraphBuilder, values: list[str], conditional: bool) -> str:
    states = at.draw(st.integers(1, 3))
    slices = 0 if conditional else at.draw(st.integers(0, 1))
    captured = _picked(at, values, at.draw(st.integers(0, 2)))
    counter = f"step{at.depth}"
    trips = at.draw(st.sampled_from([0, 1, 2, 3, 4, BATCH]))
    inside, inner, known = _inner(at, states + len(captured), counter)
    known = _grown(inside, inner, known)
    following = _picked(at, known, states)
    parts = _picked(at, known, slices)
    first = _picked(at, values, states)
    if conditional:
        more = _condition(inner, following[0], Less())
        body = inner.build([more, *following])
        flag = inner_flag(body)
        op = Loop(flag, counter, trips, states + 1, True)
        return build.add(op, _condition(build, first[0]), *first, *captured)[1]
    body = inner.build([*following, *parts])
    backwards = (at.draw(st.booleans()),) * slices
    op = Loop(body, counter, trips, states, False, (0,) * slices, backwards)
    names = build.add(op, *first, *captured)
    if slices and isinstance(trips, int) and trips > 0 and at.draw(st.booleans()):
        return build.emit(At(0, at.draw(st.integers(0, trips - 1))), names[-1])
    return at.draw(st.sampled_from(names[:states]))


def inner_flag(body: Graph) -> Graph:
    """``body`` with a first input for the condition, which it does not read."""
    flag = body.types[body.outputs[0]]
    types = {**body.types, "going": flag}
    return Graph(
        body.name, ("going", *body.inputs), body.outputs, body.nodes, types, body.constants,
        body.dims,
    )  # fmt: skip


@st.composite
def control_models(draw: Any) -> Graph:
    """A model of one input ``x``."""
    at = _Context(draw, 0, {"batch": DIM})
    build = GraphBuilder("model")
    values = [build.input("x", ROWS), build.constant(np.ones((1, 4), np.float32))]
    values = [values[0], build.emit(Mul(), *values)]
    for _ in range(draw(st.integers(1, 4))):
        values.append(_value(at, build, values))
    return build.build(list(dict.fromkeys([values[-1], draw(st.sampled_from(values[1:]))])))
