"""Loop states: the tensors that they consist of, and those that are stacked slices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.frontends.kit.emit import Emitter
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Index, Sym, compare
from modelcc.ir.types import TensorType
from modelcc.ops.broadcast import Reshape
from modelcc.ops.slicing import ReplaceSlice


def flattened(emitter: Emitter, names: Sequence[str]) -> list[str]:
    """The tensors that values consist of."""
    groups = [(name, emitter.find_group(name)) for name in names]
    return [part for name, group in groups for part in (group.parts if group else (name,))]


def regrouped(
    emitter: Emitter, like: Sequence[str], own: Emitter, flat: Sequence[str]
) -> list[str]:
    """Values of ``own`` made from ``flat`` tensors, in the structure of the values ``like`` of
    ``emitter``."""
    parts, found = iter(flat), list[str]()
    for name in like:
        group = emitter.find_group(name)
        if group is None:
            found.append(next(parts))
        else:
            found.append(own.group(group.of([next(parts) for _ in group.parts])))
    return found


@dataclass(frozen=True)
class Stack:
    """A state each slice of which along ``axis`` is written once, by ``node``, in ascending or
    descending order."""

    axis: int
    backwards: bool
    node: Node


def stacked(graph: Graph, count: int, counter: str, trips: Index) -> Mapping[int, Stack]:
    """Which of ``count`` states a body only writes slices of, all of them in ``trips`` iterations.

    Their initial values are then irrelevant.
    """
    found: dict[int, Stack] = {}
    producers, consumers = graph.producers(), graph.consumers()
    for n, (state, output) in enumerate(zip(graph.inputs[:count], graph.outputs, strict=True)):
        node = producers.get(output)
        read = len(consumers.get(state, ())) + graph.outputs.count(state)
        written = len(consumers.get(output, ())) + graph.outputs.count(output)
        if node is None or not isinstance(node.op, ReplaceSlice) or (read, written) != (1, 1):
            continue
        axis = _axis(graph, node, state)
        if axis is None or compare(graph.types[state].shape[axis], "==", trips, {}) is not True:
            continue
        place, last = node.op.starts[axis], trips - 1 - Sym(counter)
        if place in (Sym(counter), last):
            found[n] = Stack(axis, place != Sym(counter), node)
    return found


def _axis(graph: Graph, node: Node, state: str) -> int | None:
    """The axis along which ``node`` replaces one slice of ``state``, if it does."""
    whole, part = (graph.types[name].shape for name in node.inputs)
    if node.inputs[0] != state or not isinstance(node.op, ReplaceSlice):
        return None
    moving = [a for a, start in enumerate(node.op.starts) if start != 0]
    rest = [a for a in range(len(whole)) if a not in moving]
    single = len(moving) == 1 and part[moving[0]] == 1
    return moving[0] if single and all(whole[a] == part[a] for a in rest) else None


def with_slices(graph: Graph, stacks: Mapping[int, Stack], kept: Sequence[int]) -> Graph:
    """The body with slices as its last results instead of the stacked states."""
    if not stacks:
        return graph
    types = dict(graph.types)
    changed: dict[str, Node] = {}
    for n, stack in stacks.items():
        (output,), part = stack.node.outputs, stack.node.inputs[1]
        shape = types[part].shape
        shape = (*shape[: stack.axis], *shape[stack.axis + 1 :])
        types[output] = TensorType(shape, types[part].dtype)
        changed[output] = Node(Reshape(shape), (part,), (output,), stack.node.source)
        del types[graph.inputs[n]]
    nodes = tuple(changed.get(node.outputs[0], node) if node.outputs else node
                  for node in graph.nodes)  # fmt: skip
    inputs = tuple(name for n, name in enumerate(graph.inputs) if n not in stacks)
    outputs = tuple(graph.outputs[n] for n in (*kept, *stacks))
    return replace(graph, inputs=inputs, outputs=outputs, nodes=nodes, types=types)
