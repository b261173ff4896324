"""Lowering of a node whose op writes its loop function itself (sort, top-k, non-zero).

Before (graph) and after (tensor)::

    %i, %n = "mcc.NonZero"(%x)
    algorithm (%x: f32[8]) -> (%i: i64[1, 8], %n: i64[1]) { func @NonZero(…) { … } }

Scratch memory that the function asks for becomes further results, which nobody reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.algorithm import AlgorithmBuilder
from modelcc.ir.capacity import Capacity
from modelcc.ir.compute import Operand
from modelcc.ir.graph import Node
from modelcc.ir.index import Sym
from modelcc.ir.tensor import Algorithm, Item
from modelcc.ir.types import TensorType


def lower_algorithm(
    node: Node, types: Mapping[str, TensorType], capacity: Capacity
) -> tuple[list[Item], dict[str, TensorType]]:
    """The item of ``node`` for a machine of that capacity, and the types of its scratch memory."""
    at = AlgorithmBuilder(type(node.op).__name__, capacity)
    given: dict[str, Operand] = {}
    for name in node.inputs:
        if name and name not in given:
            given[name] = _declared(at, f"x{len(given)}", types[name], False)
    results = [
        _declared(at, f"y{position}", types[name], True)
        for position, name in enumerate(node.outputs)
    ]
    node.op.algorithm(at, [given[n] if n else None for n in node.inputs], results)
    scratch = {f"{node.outputs[0]}.{b.name}": b for b in at.scratch_buffers}
    function = at.function(node.source)
    sizes = tuple(Sym(name) for name in function.sizes)
    outputs = (*node.outputs, *scratch)
    item = Algorithm(function, tuple(given), outputs, sizes, node.source)
    return [item], {name: TensorType((b.size,), b.dtype) for name, b in scratch.items()}


def _declared(at: AlgorithmBuilder, name: str, type: TensorType, mutable: bool) -> Operand:
    at.buffer(name, type.dtype, type.elements, mutable)
    return Operand(name, type)
