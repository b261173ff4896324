"""Horizontal fusion of products of one tensor by several constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from modelcc.ir.graph import Graph, Node
from modelcc.ir.types import Array
from modelcc.ops.arithmetic import Add, Elementwise
from modelcc.ops.attention import Attention
from modelcc.ops.elementwise import Cast
from modelcc.ops.matmul import Gemm, MatMul
from modelcc.ops.packed_matmul import PackedMatMul
from modelcc.ops.shape import Concat, Expand, Reshape, Transpose
from modelcc.ops.slicing import Slice
from modelcc.passes.graph.graph_writer import GraphWriter

Readers: TypeAlias = Mapping[str, Sequence[Node]]


@dataclass(frozen=True)
class JoinProducts:
    """The constants are concatenated, as are biases, and each product's result is a slice.

    So queries, keys and values are one kernel that reads its input once, and has three times the
    columns to occupy a machine.  A product is joined if a slice of its result is free: where it is
    split into heads and its readers are attention, concatenations or pointwise ops, which read it
    from the longer rows.  Products whose rows are read pointwise as a whole, such as gated ones,
    stay separate: the readers are fused into the product's kernel, which saves storing and loading
    the result, where joining only saves a launch.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x4x8xf32>, %v: tensor<1x2x4x4xf32>):
          %wq = "mcc.constant"() {digest = "q"} : () -> tensor<8x8xf32>
          %bq = "mcc.constant"() {digest = "b"} : () -> tensor<8xf32>
          %wk = "mcc.constant"() {digest = "k"} : () -> tensor<8x8xf32>
          %p = "mcc.MatMul"(%x, %wq)
          %q = "mcc.Add"(%p, %bq)
          %qh = "mcc.Reshape"(%q) {shape = [1, 4, 2, 4]}
          %qt = "mcc.Transpose"(%qh) {perm = [0, 2, 1, 3]}
          %k = "mcc.MatMul"(%x, %wk)
          %kh = "mcc.Reshape"(%k) {shape = [1, 4, 2, 4]}
          %kt = "mcc.Transpose"(%kh) {perm = [0, 2, 1, 3]}
          %y = "mcc.Attention"(%qt, %kt, %v) {scale = 0.5, causal = false, offset = 0}
          "mcc.return"(%y)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<1x4x8xf32>, %v: tensor<1x2x4x4xf32>):
          %w = "mcc.constant"() {digest = "qk"} : () -> tensor<8x16xf32>
          %b = "mcc.constant"() {digest = "b0"} : () -> tensor<16xf32>
          %p = "mcc.MatMul"(%x, %w)
          %s = "mcc.Add"(%p, %b)
          %q = "mcc.Slice"(%s) {starts = [0, 0, 0], extents = [1, 4, 8], steps = [1, 1, 1]}
          %qh = "mcc.Reshape"(%q) {shape = [1, 4, 2, 4]}
          %qt = "mcc.Transpose"(%qh) {perm = [0, 2, 1, 3]}
          %k = "mcc.Slice"(%s) {starts = [0, 0, 8], extents = [1, 4, 8], steps = [1, 1, 1]}
          %kh = "mcc.Reshape"(%k) {shape = [1, 4, 2, 4]}
          %kt = "mcc.Transpose"(%kh) {perm = [0, 2, 1, 3]}
          %y = "mcc.Attention"(%qt, %kt, %v) {scale = 0.5, causal = false, offset = 0}
          "mcc.return"(%y)
        })
    """

    def __call__(self, graph: Graph) -> Graph:
        readers = graph.consumers()
        groups: dict[object, list[_Member]] = {}
        for node in graph.nodes:
            member = _member(graph, readers, node)
            if member is not None:
                groups.setdefault(_kind(graph, node), []).append(member)
        first = {g[0].node.outputs[0]: g for g in groups.values() if len(g) > 1}
        if not first:
            return graph
        gone = {name for g in first.values() for m in g for name in (m.node.outputs[0], m.result)}
        writer = GraphWriter(graph)
        for node in graph.nodes:
            if node.outputs[0] in first:
                _join(writer, first[node.outputs[0]])
            elif gone.isdisjoint(node.outputs):
                writer.append(node)
        return writer.graph()


@dataclass(frozen=True)
class _Member:
    """A product; ``result`` includes the bias, if there is one."""

    node: Node
    result: str
    bias: str
    source: tuple[str, ...]


def _member(graph: Graph, readers: Readers, node: Node) -> _Member | None:
    """The product of ``node``, if it may be joined with others."""
    if not isinstance(node.op, MatMul | Gemm | PackedMatMul) or node.op == Gemm(trans_b=True):
        return None
    x, *constants = node.inputs
    (name,) = node.outputs
    columns = graph.types[name].shape[-1:]
    types = [graph.types[n] for n in constants if n in graph.constants]
    alike = len(types) == len(constants) and all(t.shape[-1:] in (columns, ()) for t in types)
    if not alike or x in graph.constants or types[0].rank < 2 or graph.types[x].rank < 2:
        return None
    result, bias, source = name, "", node.source
    following = _bias(graph, readers, name)
    if following is not None:
        (result,), bias = following.outputs, following.inputs[1]
        source = (*source, *following.source)
    return _Member(node, result, bias, source) if _splits(graph, readers, result, False) else None


def _bias(graph: Graph, readers: Readers, name: str) -> Node | None:
    """The sum of a product with a constant per column, if that is its only reader."""
    after = readers.get(name, ())
    if len(after) != 1 or not isinstance(after[0].op, Add) or name in graph.outputs:
        return None
    value, bias = after[0].inputs
    fits = value == name and bias in graph.constants
    same = fits and graph.types[bias].shape == graph.types[name].shape[-1:]
    return after[0] if same else None


def _splits(graph: Graph, readers: Readers, name: str, split: bool) -> bool:
    """Whether all readers of ``name``, whose heads are ``split`` already or not, could read it from
    longer rows after splitting."""
    if name in graph.outputs:
        return False
    for node in readers.get(name, ()):
        match node.op:
            case Reshape():
                own = (graph.types[n].shape[-1:] for n in (name, node.outputs[0]))
                found = _splits(graph, readers, node.outputs[0], split or len(set(own)) > 1)
            case Transpose() | Expand():
                found = _splits(graph, readers, node.outputs[0], split)
            case Slice():
                found = _splits(graph, readers, node.outputs[0], True)
            case Elementwise() | Cast() | Concat() | Attention():
                found = split
            case MatMul():
                found = split and not any(n in graph.constants for n in node.inputs)
            case _:
                found = False
        if not found:
            return False
    return True


def _kind(graph: Graph, node: Node) -> object:
    """A key that is equal for products that can be joined."""
    x, *constants = node.inputs
    types = (graph.types[n] for n in constants)
    shapes = tuple((t.dtype, t.rank, t.shape[:-1]) for t in types)
    numbers = tuple(graph.constants[n].data.item() for n in constants if graph.types[n].rank == 0)
    return node.op, x, shapes, numbers


def _join(writer: GraphWriter, group: Sequence[_Member]) -> None:
    """The product of a group, and slices of its result, which keep the original names."""
    first, graph = group[0].node, writer.source
    source = tuple(dict.fromkeys(s for member in group for s in member.source))
    operands = [first.inputs[0]]
    for name, *others in zip(*(m.node.inputs[1:] for m in group), strict=True):
        data = [graph.constants[n].data for n in (name, *others)]
        operands.append(writer.constant(np.concatenate(data, -1), name) if data[0].ndim else name)
    whole = writer.emit(first.op, *operands, source=source)
    if any(member.bias for member in group):
        data = [_bias_of(graph, member) for member in group]
        bias = writer.constant(np.concatenate(data), f"{operands[1]}.bias")
        whole = writer.emit(Add(), whole, bias, source=source)
    start = 0
    for member in group:
        *rows, columns = graph.types[member.result].shape
        op = Slice((*(0 for _ in rows), start), (*rows, columns), (1,) * (len(rows) + 1))
        writer.emit(op, whole, source=member.source, name=member.result)
        assert isinstance(columns, int)
        start += columns


def _bias_of(graph: Graph, member: _Member) -> Array:
    if member.bias:
        return graph.constants[member.bias].data
    columns = graph.constants[member.node.inputs[1]].data.shape[-1]
    return np.zeros(columns).astype(graph.types[member.result].dtype.numpy)
