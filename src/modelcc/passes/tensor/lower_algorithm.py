"""Lowering of nodes whose ops build their loop function themselves (sort, top-k, non-zero).

Before (graph) and after (tensor)::

    %i, %n = "mcc.NonZero"(%x)
    algorithm (%x: f32[8]) -> (%i: i64[1, 8], %n: i64[1]) { func @NonZero(…) { … } }

Scratch memory of the function becomes further results, which are unused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from modelcc.ir.algorithm import AlgorithmBuilder
from modelcc.ir.capacity import Capacity, GroupCapacity
from modelcc.ir.compute import Operand
from modelcc.ir.graph import Node
from modelcc.ir.index import Sym
from modelcc.ir.library import meaning_of
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import grid_loop, has_elements, parallel_loop
from modelcc.ir.tensor import Algorithm
from modelcc.ir.types import F64, TensorType
from modelcc.passes.loop.split_launches import split_launches
from modelcc.passes.loop.thread_each import thread_each


def lower_algorithm(
    node: Node, types: Mapping[str, TensorType], capacity: Capacity
) -> tuple[list[Algorithm], dict[str, TensorType]]:
    """The item of ``node`` for a machine of that capacity, and the types of its scratch memory.

    On an accelerator it uses groups of threads, if the op has a version for these, or many
    independent iterations; otherwise it runs on the host.
    """
    if capacity.groups is None:
        return _written(node, types, capacity)
    (item,), scratch = _written(node, types, capacity.each_thread(capacity.groups))
    function = _in_groups(meaning_of(item.function), capacity.groups)
    if function is None:
        return _written(node, types, replace(capacity, groups=None))
    tensors = dict(zip(_names(function), (*item.inputs, *item.outputs), strict=True))
    return [_item(part, tensors, item.source) for part in split_launches(function)], scratch


def _names(function: Function) -> list[str]:
    return [p.buffer.name for p in function.parameters]


def _item(function: Function, tensors: Mapping[str, str], source: tuple[str, ...]) -> Algorithm:
    """A call of ``function``, whose parameters are these tensors."""
    inputs, outputs = (
        tuple(tensors[p.buffer.name] for p in function.parameters if p.mutable == mutable)
        for mutable in (False, True)
    )
    return Algorithm(function, inputs, outputs, tuple(map(Sym, function.sizes)), source)


def _in_groups(function: Function, groups: GroupCapacity) -> Function | None:
    """``function`` for an accelerator, if that is profitable."""
    if grid_loop(function) is not None:
        return function
    if not groups.doubles and has_elements(function, F64):
        return None
    loop = parallel_loop(function)
    if loop is None or not groups.are_many(loop.stop):
        return None
    return thread_each(function, max(groups.threads // 4, 1))


def _written(
    node: Node, types: Mapping[str, TensorType], capacity: Capacity
) -> tuple[list[Algorithm], dict[str, TensorType]]:
    """The item built by the op."""
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
