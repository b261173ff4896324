"""Sums of convolutions of one tensor: what becomes one convolution, and that it is the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from modelcc.ir.builder import GraphBuilder
from modelcc.ir.graph import Graph
from modelcc.ir.graph_interpreter import interpret
from modelcc.ir.types import F32, Array, TensorType
from modelcc.ops.conv import Conv
from modelcc.ops.elementwise import Add, Mul, Sub
from modelcc.passes.graph.merge_branches import MergeBranches

Kernel = tuple[int, int]


class Branches:
    """Branches of one image of eight channels."""

    def __init__(self) -> None:
        self.build = GraphBuilder()
        self.rng = np.random.default_rng(0)
        self.x = self.build.input("x", TensorType((2, 8, 7, 6), F32))

    def constant(self, *shape: int) -> str:
        return self.build.constant(self.rng.standard_normal(shape).astype(np.float32))

    def conv(self, kernel: Kernel, groups: int = 1, stride: int = 1, dilation: int = 1) -> str:
        pads = tuple(k // 2 * dilation for k in kernel)
        op = Conv((stride, stride), pads, pads, (dilation, dilation), groups)
        weights = self.constant(8, 8 // groups, *kernel)
        return self.build.emit(op, self.x, weights, self.constant(8))

    def affine(self) -> str:
        scaled = self.build.emit(Mul(), self.x, self.constant(8, 1, 1))
        return self.build.emit(Add(), scaled, self.constant(1, 8, 1, 1))

    def sum(self, *parts: str) -> Graph:
        total = parts[0]
        for part in parts[1:]:
            total = self.build.emit(Add(), total, part)
        return self.build.build([total])


def convolutions(graph: Graph) -> int:
    return sum(isinstance(node.op, Conv) for node in graph.nodes)


def outputs(graph: Graph) -> list[Array]:
    x = np.random.default_rng(1).standard_normal((2, 8, 7, 6)).astype(np.float32)
    return list(interpret(graph, {"x": x}).values())


def mixed(b: Branches) -> Graph:
    return b.sum(b.conv((1, 1)), b.affine(), b.conv((3, 3)), b.x)


def difference(b: Branches) -> Graph:
    return b.build.build([b.build.emit(Sub(), b.affine(), b.conv((3, 3), 8))])


MERGED: dict[str, Callable[[Branches], Graph]] = {
    "sizes": lambda b: b.sum(b.conv((3, 3)), b.conv((5, 5)), b.conv((1, 3))),
    "strides": lambda b: b.sum(b.conv((1, 1), 2, 2), b.conv((3, 3), 2, 2)),
    "depthwise": lambda b: b.sum(b.conv((3, 3), 8), b.conv((1, 1), 8), b.x),
    "dilated": lambda b: b.sum(b.conv((3, 3), dilation=2), b.conv((1, 1))),
    "groups and factors": lambda b: b.sum(b.conv((3, 3), 2), b.affine()),
    "all kinds": mixed,
    "difference": difference,
}  # fmt: skip
APART: dict[str, Callable[[Branches], Graph]] = {
    "neither is wider": lambda b: b.sum(b.conv((1, 3)), b.conv((3, 1))),
    "other groups": lambda b: b.sum(b.conv((3, 3), 2), b.conv((3, 3), 4)),
    "other dilations": lambda b: b.sum(b.conv((3, 3)), b.conv((3, 3), dilation=2)),
}


@pytest.mark.parametrize("name", MERGED)
def test_branches_become_one_convolution(name: str) -> None:
    graph = MERGED[name](Branches())
    merged = MergeBranches()(graph)
    assert len(merged.nodes) == convolutions(merged) == 1
    for got, wanted in zip(outputs(merged), outputs(graph), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", APART)
def test_branches_that_do_not_fit_stay(name: str) -> None:
    graph = APART[name](Branches())
    assert convolutions(MergeBranches()(graph)) == 2


def test_a_convolution_that_others_read_stays() -> None:
    b = Branches()
    conv = b.conv((3, 3))
    total = b.build.emit(Add(), conv, b.conv((1, 1)))
    graph = b.build.build([total, conv])
    assert convolutions(MergeBranches()(graph)) == 2
