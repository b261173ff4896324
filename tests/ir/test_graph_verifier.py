"""Malformed graphs are refused with the right message."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.graph_verifier import verify_graph
from modelcc.ir.index import Sym
from modelcc.ir.types import F32, I64, TensorType
from tests.ir.tiny_ops import Add, Neg, Reshape, Scale, Twice

X = TensorType((4,), F32)


def graph() -> Graph:
    build = GraphBuilder()
    x = build.input("x", X)
    h = build.emit(Neg(), x, source=("first",), name="h")
    c = build.constant(np.ones(4, np.float32))
    return build.build([build.emit(Add(), h, c, source=("second",), name="y")])


GOOD = graph()
NEG, ADD = GOOD.nodes


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (replace(GOOD, nodes=(ADD,)), "second: tiny.Add reads 'h', which is no value of 'main'"),
        (replace(GOOD, nodes=(ADD, NEG)), "second: tiny.Add reads 'h' before it is computed"),
        (replace(GOOD, nodes=(NEG, NEG, ADD)), "first: value 'h' is defined twice"),
        (replace(GOOD, nodes=(NEG, replace(ADD, outputs=("x",)))), "'x' is defined twice"),
        (replace(GOOD, nodes=(NEG, replace(ADD, outputs=("z",)))), "value 'z' has no type"),
        (replace(GOOD, nodes=(NEG, replace(ADD, outputs=("",)))), "empty name"),
        (replace(GOOD, nodes=(NEG, replace(ADD, outputs=("y", "y2")))), "no type"),
        (replace(GOOD, nodes=(NEG, replace(ADD, outputs=()))), "has 1 results, not 0"),
        (replace(GOOD, nodes=(NEG,)), "output 'y' is not computed"),
        (replace(GOOD, types={**GOOD.types, "spare": X}), "'spare', which is no value"),
        (
            replace(GOOD, types={**GOOD.types, "h": TensorType((5,), F32)}),
            "first: value 'h' is f32[4] by the rule of tiny.Neg, but its type says f32[5]",
        ),
        (
            replace(GOOD, constants={"c": Constant(np.ones(3, np.float32))}),
            "constant 'c' holds f32[3] but its type is f32[4]",
        ),
        (replace(GOOD, nodes=(NEG, replace(ADD, op=Scale()))), None),
        (
            replace(GOOD, types={**GOOD.types, "x": TensorType((Sym("n"),), F32)}),
            "input 'x' uses the named dimension 'n', which has no bounds",
        ),
        (
            replace(GOOD, nodes=(replace(NEG, op=Reshape((Sym("n"),))), ADD)),
            "but its type says",
        ),
    ],
)
def test_refused(bad: Graph, message: str | None) -> None:
    verify_graph(GOOD)
    if message is None:
        verify_graph(bad)
        return
    with pytest.raises(ModelError) as caught:
        verify_graph(bad)
    assert message in str(caught.value)


def test_sub_graphs_are_verified() -> None:
    bad = replace(GOOD, nodes=(NEG,))
    outer = GraphBuilder()
    x = outer.input("x", X)
    node = Node(Twice(bad), (x,), ("t",))
    whole = replace(outer.build([x]), nodes=(node,), outputs=("t",), types={"x": X, "t": X})
    with pytest.raises(ModelError, match="output 'y' is not computed"):
        verify_graph(whole)


def test_op_rules_are_located() -> None:
    build = GraphBuilder()
    x = build.input("x", TensorType((4,), I64))
    with pytest.raises(ModelError, match="conv1: Scale wants a float tensor"):
        build.emit(Scale(2.0), x, source=("conv1",))
    with pytest.raises(ModelError, match=r"does not take these operands: \(i64\[4\]"):
        build.emit(Neg(), x, x)


def test_builder_names_and_constants() -> None:
    build = GraphBuilder()
    x = build.input("x", X)
    a = build.constant(np.full(200, 3.0, np.float32))
    other = np.full(200, 3.0, np.float32)
    other[1] = 4
    assert build.constant(np.full(200, 3.0, np.float32)) == a != build.constant(other)
    assert build.constant(3.0) != build.constant(3.0, I64)
    assert [build.emit(Neg(), x) for _ in range(3)] == ["neg", "neg_1", "neg_2"]
    with pytest.raises(ValueError, match="'neg_2' is used twice"):
        build.emit(Neg(), x, name="neg_2")
    with pytest.raises(ValueError, match="no value 'q'"):
        build.emit(Neg(), "q")
    assert not build.build(["neg_2"]).constants


def test_what_was_well_formed_is_looked_into_again_where_something_changed() -> None:
    """A node that was there before is settled only among values of the same types."""
    wider = {**GOOD.types, "x": TensorType((5,), F32)}
    verify_graph(GOOD, before=GOOD)
    with pytest.raises(ModelError, match=r"first: value 'h' is f32\[5\] by the rule"):
        verify_graph(replace(GOOD, types=wider), before=GOOD)
    with pytest.raises(ModelError, match="value 'h' is defined twice"):
        verify_graph(replace(GOOD, nodes=(NEG, NEG, ADD)), before=GOOD)
    changed = replace(NEG, inputs=(GOOD.nodes[1].inputs[1],))
    verify_graph(replace(GOOD, nodes=(changed, ADD)), before=GOOD)
