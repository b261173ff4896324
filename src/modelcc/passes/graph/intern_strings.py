"""Strings become handles: 64-bit numbers that are equal where the strings are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from modelcc.ir.builder import infer_types
from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.op import Op
from modelcc.ir.structure import Interface
from modelcc.ir.types import I64, STRING, Array, TensorType
from modelcc.ops.elementwise import Equal, Identity, NotEqual, Where
from modelcc.ops.gather import Gather, GatherElements, GatherND
from modelcc.ops.gather_elements import ScatterElements
from modelcc.ops.gather_nd import ScatterND
from modelcc.ops.shape import Concat, Expand, Reshape, Tile, Transpose
from modelcc.ops.slicing import Slice
from modelcc.ops.time_axis import ReverseSequence

MOVING: tuple[type[Op], ...] = (
    *(Identity, Where, Concat, Expand, Reshape, Tile, Transpose, Slice),
    *(Gather, GatherElements, GatherND, ScatterElements, ScatterND, Equal, NotEqual),
    ReverseSequence,
)
"""Ops that only move elements or compare them for equality."""


@dataclass(frozen=True)
class InternStrings:
    """String elements become i64; the interface lists the caller's string tensors.

    Strings in constants are numbered from 0 on; other strings of a caller are numbered in each
    call.  :class:`ModelError` for an op that reads contents of strings.

    before::

        "mcc.graph"() ({
        ^bb0(%x: tensor<3x!mcc.string>):
          %y = "mcc.Reshape"(%x) {shape = [3, 1]}
          %z = "mcc.Equal"(%y, %x)
          "mcc.return"(%z)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%x: tensor<3xi64>):
          %y = "mcc.Reshape"(%x) {shape = [3, 1]}
          %z = "mcc.Equal"(%y, %x)
          "mcc.return"(%z)
        }) {interface = {inputs = {x = "x"}, outputs = {z = "z"}, strings = ["x"], texts = []}}
    """

    def __call__(self, graph: Graph) -> Graph:
        strings = [name for name, type in graph.types.items() if type.dtype == STRING]
        if not strings:
            return graph
        for node in graph.nodes:
            _check(graph, node)
        texts: dict[str, int] = {}
        constants = {n: _handles(c, texts) for n, c in graph.constants.items()}
        types = {n: _plain(t) for n, t in graph.types.items()}
        for node in graph.nodes:  # ops accept the new types
            results = infer_types(node.op, [types[n] if n else None for n in node.inputs])
            types |= zip(node.outputs, results, strict=True)
        own = [n for n in (*graph.inputs, *graph.outputs) if n in set(strings)]
        interface = graph.interface or Interface(
            {n: n for n in graph.inputs}, {n: n for n in graph.outputs}
        )
        return replace(
            graph,
            types=MappingProxyType(types),
            constants=MappingProxyType(constants),
            interface=replace(interface, strings=tuple(dict.fromkeys(own)), texts=tuple(texts)),
        )


def _check(graph: Graph, node: Node) -> None:
    types = [graph.types[n] for n in (*node.inputs, *node.outputs) if n]
    if all(t.dtype != STRING for t in types):
        return
    reduction = node.op.attributes().get("reduction", "none")
    if not isinstance(node.op, MOVING) or reduction != "none":
        raise ModelError(
            f"{node.op.mnemonic()} looks into texts; compiled code can only move and compare them",
            node.source,
            "do the text processing outside of the model",
        )


def _plain(type: TensorType) -> TensorType:
    return replace(type, dtype=I64) if type.dtype == STRING else type


def _handles(constant: Constant, texts: dict[str, int]) -> Constant:
    data: Array = constant.data
    if constant.type.dtype != STRING:
        return constant
    flat = [texts.setdefault(str(text), len(texts)) for text in data.reshape(-1).tolist()]
    return Constant(np.array(flat, np.int64).reshape(data.shape))
