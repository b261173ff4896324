"""The worklist driver of local rewriting."""

from __future__ import annotations

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph, Node
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.index import Sym
from modelcc.ir.rewriting import Replacement, Rewriter, rewrite, rewrite_counted
from modelcc.ir.types import F32, TensorType
from tests.ir.tiny_ops import Add, Halves, Neg, Reshape, Scale

X = TensorType((4,), F32)
FEEDS = {"x": np.arange(4, dtype=np.float32)}


def double_negation(node: Node, at: Rewriter) -> Replacement:
    match node.op, at.producer(node.inputs[0]):
        case Neg(), Node(Neg(), (x,)):
            return x
        case _:
            return None


def neg_to_scale(node: Node, at: Rewriter) -> Replacement:
    return at.emit(Scale(-1.0), node.inputs[0]) if isinstance(node.op, Neg) else None


def merge_scales(node: Node, at: Rewriter) -> Replacement:
    match node.op, at.producer(node.inputs[0]):
        case Scale(a), Node(Scale(b), (x,)):
            return at.emit(Scale(a * b), x)
        case _:
            return None


def chain(length: int) -> Graph:
    build = GraphBuilder()
    x = build.input("x", X)
    for i in range(length):
        x = build.emit(Neg(), x, source=(f"neg {i}",))
    return build.build([build.emit(Scale(2.0), x, source=("scale",), name="y")])


def check(before: Graph, after: Graph) -> None:
    verify_graph(after)
    assert after.outputs == before.outputs and after.inputs == before.inputs
    want, got = interpret(before, FEEDS), interpret(after, FEEDS)
    for name, value in want.items():
        np.testing.assert_array_equal(got[name], value)


def test_counts_and_sources() -> None:
    graph = chain(3)
    after, counts = rewrite_counted(graph, (neg_to_scale, merge_scales))
    check(graph, after)
    assert counts == {"neg_to_scale": 3, "merge_scales": 3}
    (node,) = after.nodes
    assert node == Node(Scale(-2.0), ("x",), ("y",), ("neg 0", "neg 1", "neg 2", "scale"))


@pytest.mark.parametrize("limit", range(7))
def test_limit(limit: int) -> None:
    graph = chain(3)
    after, counts = rewrite_counted(graph, (neg_to_scale, merge_scales), limit)
    check(graph, after)
    assert sum(counts.values()) == min(limit, 6)


def test_nothing_fires_gives_the_same_graph() -> None:
    graph = chain(1)
    assert rewrite(graph, (double_negation,)) is graph


def test_output_takes_over_the_replacement() -> None:
    build = GraphBuilder()
    x = build.emit(Scale(3.0), build.input("x", X), name="h")
    side = build.emit(Scale(5.0), x, name="side")
    y = build.emit(Neg(), build.emit(Neg(), x), name="y")
    graph = build.build([y, side])
    after = rewrite(graph, (double_negation,))
    check(graph, after)
    assert [n.outputs for n in after.nodes] == [("y",), ("side",)]
    assert after.nodes[1].inputs == ("y",)


def test_output_that_cannot_be_renamed_keeps_its_node() -> None:
    build = GraphBuilder()
    x = build.input("x", X)
    y = build.emit(Neg(), build.emit(Neg(), x), name="y")
    z = build.emit(Scale(2.0), y, name="z")
    graph = build.build([y, z])
    after, counts = rewrite_counted(graph, (double_negation,))
    check(graph, after)
    assert counts == {"double_negation": 1}
    assert after.nodes[-1].inputs == ("x",)


def test_two_outputs_of_one_value() -> None:
    def same(node: Node, at: Rewriter) -> Replacement:
        if isinstance(node.op, Halves):
            half = at.emit(Reshape((2,)), at.emit(Scale(1.0), node.inputs[0]))
            return half, half
        return None

    build = GraphBuilder()
    a, b = build.add(Halves(F32), build.input("x", TensorType((Sym("n"),), F32)))
    graph = build.build([a, b])
    after = rewrite(graph, (same,), limit=1)
    assert after.outputs == graph.outputs
    assert len(after.nodes) in (1, 3)


def test_matches_that_come_to_nothing_leave_nothing() -> None:
    def tries(node: Node, at: Rewriter) -> Replacement:
        at.emit(Add(), node.inputs[0], at.constant(1.5))
        return None

    graph = chain(2)
    assert rewrite(graph, (tries,)) is graph
    after = rewrite(graph, (tries, double_negation))
    assert len(after.nodes) == 1 and not after.constants
    check(graph, after)


def test_new_nodes_come_before_their_readers() -> None:
    def split(node: Node, at: Rewriter) -> Replacement:
        match node.op:
            case Scale(4.0):
                return at.emit(Scale(2.0), at.emit(Neg(), at.emit(Neg(), node.inputs[0])))
            case _:
                return None

    build = GraphBuilder()
    x = build.input("x", X)
    y = build.emit(Add(), build.emit(Scale(4.0), x), build.emit(Scale(4.0), x))
    graph = build.build([build.emit(Scale(4.0), y)])
    verify_graph(rewrite(graph, (split,)))
    verify_graph(rewrite(graph, (split, double_negation, neg_to_scale)))


def test_wrong_type_and_endless_rules_are_faults() -> None:
    def wrong(node: Node, at: Rewriter) -> Replacement:
        return at.emit(Reshape((2, 2)), node.inputs[0]) if isinstance(node.op, Neg) else None

    def endless(node: Node, at: Rewriter) -> Replacement:
        return at.emit(Neg(), node.inputs[0])

    with pytest.raises(RuntimeError, match=r"neg 0: rule wrong gives f32\[2, 2\]"):
        rewrite(chain(1), (wrong,))
    with pytest.raises(RuntimeError, match="do not come to an end"):
        rewrite(chain(1), (endless,))


def test_large_graph() -> None:
    build = GraphBuilder()
    x = build.input("x", X)
    for i in range(1000):
        x = build.emit(Scale(1.0 + i % 3), build.emit(Neg(), x))
    graph = build.build([x])
    after = rewrite(graph, (double_negation, neg_to_scale, merge_scales))
    assert len(after.nodes) == 1
