"""Graph passes reach the bodies of branches and loops."""

from __future__ import annotations

import numpy as np

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import BOOL, F32, TensorType
from modelcc.ops.arithmetic import Add, Mul
from modelcc.ops.control import If, Loop
from modelcc.ops.transcendental import Exp
from modelcc.passes.graph.bodies import CountedInBodies, InBodies, in_bodies
from modelcc.passes.graph.dead_code import DeadCode
from modelcc.passes.graph.fold_constants import FoldConstants
from modelcc.passes.graph.simplify_control import SimplifyControl

VECTOR = TensorType((4,), F32)


def branch(known: bool | None, trips: int = 3) -> Graph:
    """A loop in a branch; ``known`` is the condition, an input if None."""
    inner = GraphBuilder("inner")
    s, w = inner.input("s", VECTOR), inner.input("w", VECTOR)
    factor = inner.emit(Exp(), inner.constant(np.zeros(4, np.float32)))
    inner.emit(Add(), s, s)
    body = inner.build([inner.emit(Mul(), s, inner.emit(Add(), w, factor))])
    then = GraphBuilder("then")
    x, w = then.input("x", VECTOR), then.input("w", VECTOR)
    looped = then.build(then.add(Loop(body, "t", trips, 1), x, w))
    other = GraphBuilder("other")
    x, w = other.input("x", VECTOR), other.input("w", VECTOR)
    model = GraphBuilder("model")
    x = model.input("x", VECTOR)
    c = model.input("c", TensorType((), BOOL)) if known is None else model.constant(np.array(known))
    w = model.constant(np.full(4, 0.5, np.float32))
    op = If(looped, other.build([x]))
    return model.build(model.add(op, c, x, w))


def inner_loop(graph: Graph) -> Loop:
    (node,) = graph.nodes
    assert isinstance(node.op, If)
    (loop,) = node.op.then.nodes
    assert isinstance(loop.op, Loop)
    return loop.op


def test_wrapping() -> None:
    assert isinstance(in_bodies(FoldConstants()), CountedInBodies)
    assert isinstance(in_bodies(DeadCode()), InBodies)


def test_passes_reach_inner_bodies() -> None:
    graph = branch(None)
    assert len(inner_loop(graph).body.nodes) == 4
    assert len(inner_loop(InBodies(DeadCode())(graph)).body.nodes) == 3
    folded = InBodies(DeadCode())(CountedInBodies(FoldConstants())(graph))
    assert len(inner_loop(folded).body.nodes) == 2
    assert CountedInBodies(FoldConstants(), 0)(graph) == graph


def test_known_branches_are_taken_and_invariants_leave_loops() -> None:
    x = np.arange(4, dtype=np.float32)
    for known, nodes in ((True, 2), (False, 1)):
        graph = branch(known)
        simple = InBodies(SimplifyControl())(InBodies(FoldConstants())(graph))
        simple = InBodies(SimplifyControl())(simple)
        assert len(simple.nodes) == nodes
        for result in (graph, simple):
            (got,) = interpret(result, {"x": x}).values()
            np.testing.assert_allclose(got, x * 1.5**3 if known else x, 1e-6)


def test_single_iterations_are_written_out() -> None:
    graph = branch(True, trips=1)
    simple = InBodies(SimplifyControl())(graph)
    assert not any(isinstance(node.op, Loop | If) for node in simple.nodes)
    x = np.arange(4, dtype=np.float32)
    (got,) = interpret(simple, {"x": x}).values()
    np.testing.assert_allclose(got, x * 1.5, 1e-6)
