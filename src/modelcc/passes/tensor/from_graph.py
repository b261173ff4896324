"""Lowering a graph to the tensor level: one kernel per stage of each op's ``compute``.

Before (graph) and after (tensor), for one node::

    %y = "mcc.Relu"(%x)
    kernel @Relu(%x) -> (%y) { %y = [i < n] max(%x[i], 0.0) }

A stage that only renames positions of a row-major buffer (reshape, squeeze) becomes a view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from modelcc.ir.capacity import SCALAR, Capacity
from modelcc.ir.compute import Operand, StageBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Bounds, Sym, loop_range, simplify
from modelcc.ir.op import Op
from modelcc.ir.scalar import identity
from modelcc.ir.scalar_tree import reads, transform
from modelcc.ir.structure import states_of
from modelcc.ir.tensor import (
    Axis,
    Bind,
    Item,
    Kernel,
    Number,
    Read,
    ReadSize,
    Scalar,
    Scatter,
    Stage,
    TensorProgram,
    View,
    item_outputs,
)
from modelcc.ir.tensor_renaming import rename_stage, rename_tensors
from modelcc.ir.types import TensorType
from modelcc.ops import runtime_size
from modelcc.ops.control import Control
from modelcc.ops.runtime_size import bound_sizes, with_sizes_apart
from modelcc.passes.tensor.lower_algorithm import lower_algorithm
from modelcc.passes.tensor.lower_control import Lowered, ProgramScope, lower_control


def lower_graph(graph: Graph, capacity: Capacity = SCALAR) -> TensorProgram:
    """The tensor program of ``graph``; :class:`ModelError` names every op lacking ``compute``.

    Ops that build loop functions do so for a machine of that ``capacity``.
    """
    missing = [n for n in _all_nodes(graph) if not has_code(n.op)]
    if missing:
        raise ModelError(
            "ops without generated code: " + ", ".join(_describe(n) for n in missing),
            (),
            "decompose them first or leave them out",
        )
    complex_ = [n for n in _all_nodes(graph) if _is_complex(n, graph)]
    if complex_:
        raise ModelError(
            "there is no code for complex numbers: " + ", ".join(map(_describe, complex_)),
            (),
            "keep real and imaginary parts in an axis of two",
        )
    graph = with_sizes_apart(graph)
    lowered = lower_items(graph, ProgramScope.of(graph), capacity)
    dims = {**graph.dims, **lowered.dims}
    states = {state.output: state.input for state in states_of(graph.interface).values()}
    program = TensorProgram(
        graph.name, graph.inputs, graph.outputs, (), lowered.types, lowered.constants, dims, states
    )
    return program.with_items(tuple(lowered.items))


def _all_nodes(graph: Graph) -> Iterator[Node]:
    """Nodes other than control flow, including those in its bodies."""
    for node in graph.nodes:
        if isinstance(node.op, Control):
            for body in node.op.graphs().values():
                yield from _all_nodes(body)
        else:
            yield node


def _is_complex(node: Node, graph: Graph) -> bool:
    types = (graph.types.get(n) for n in (*node.inputs, *node.outputs))
    return any(t is not None and t.dtype.kind == "complex" for t in types)


def lower_items(graph: Graph, scope: ProgramScope, capacity: Capacity) -> Lowered:
    """The items of a graph whose names are those of the whole program."""
    items: list[Item] = []
    lowered = Lowered(items, dict(graph.types), dict(graph.constants), bound_sizes(graph))
    for node in graph.nodes:
        if isinstance(node.op, Control):
            lower = partial(lower_items, capacity=capacity)
            region = lower_control(node, node.op, scope, lower)
            items += region.items
            lowered.types |= region.types
            lowered.constants |= region.constants
            lowered.dims |= region.dims
            continue
        made, internal = _lower(node, graph, capacity)
        lowered.types |= internal
        items += made
    writers = Counter(name for item in items for name in item_outputs(item))
    parts = frozenset(name for name, number in writers.items() if number > 1)
    items[:] = [_as_view(i, lowered.types, graph.dims, parts) for i in items]
    items[:] = assertions_first(items, graph.constants)
    return lowered


def assertions_first(items: Sequence[Item], constants: Container[str]) -> list[Item]:
    """``items`` with constraints on sizes as soon as these are known.

    Tensors written before a violated constraint is checked might not have room.
    """
    groups: list[list[Item]] = [[]]  # even positions: runs of size reads, odd ones: items between
    readings: dict[str, int] = {}  # the position of the run where a symbol is read
    for item in items:
        in_run = len(groups) % 2 == 1
        if not isinstance(item, ReadSize):
            if in_run:
                groups.append([])
            groups[-1].append(item)
        elif not item.symbols and item.tensor in constants:
            place = max((readings[name] for name in item.needs if name in readings), default=0)
            groups[place].append(item)
        else:
            if not in_run:
                groups.append([])
            groups[-1].append(item)
            readings |= dict.fromkeys(item.symbols, len(groups) - 1)
    return [item for group in groups for item in group]


def has_code(op: Op) -> bool:
    """Whether ``op`` can be lowered to the tensor level."""
    return op.has("compute") or op.has("algorithm") or isinstance(op, runtime_size.ReadSize)


def _lower(
    node: Node, graph: Graph, capacity: Capacity
) -> tuple[list[Item], dict[str, TensorType]]:
    op = node.op
    if isinstance(op, runtime_size.ReadSize):
        (x,), (y,) = node.inputs, node.outputs
        return [ReadSize(op.names, x, op.conditions(), node.source), View(y, x, node.source)], {}
    if op.has("algorithm"):
        _require_contents(node, graph)
        items, scratch = lower_algorithm(node, graph.types, capacity)
        return [*items], scratch
    return _lower_node(node, graph)


def _require_contents(node: Node, graph: Graph) -> None:
    types = [graph.types[name] if name else None for name in node.inputs]
    constants = [graph.constants.get(name) for name in node.inputs]
    try:
        node.op.require_contents(types, [None if c is None else c.data for c in constants])
    except ModelError as error:
        raise error.at(*node.source) from error


def _describe(node: Node) -> str:
    return f"{type(node.op).__name__} ({', '.join(node.source) or node.outputs[0]})"


def _lower_node(node: Node, graph: Graph) -> tuple[list[Item], dict[str, TensorType]]:
    if all(0 in graph.types[name].shape for name in node.outputs):
        return [_kernel(_empty(name, graph.types[name]), node) for name in node.outputs], {}
    operands = [Operand(n, graph.types[n]) if n else None for n in node.inputs]
    builder = StageBuilder(node.outputs[0])
    result = node.op.compute(builder, *operands)
    results = result if isinstance(result, tuple) else (result,)
    rename: dict[str, str] = {}
    items: list[Item] = []
    for name, operand in zip(node.outputs, results, strict=True):
        if operand.name in builder.types and operand.name not in rename:
            rename[operand.name] = name
        else:
            items.append(View(name, rename.get(operand.name, operand.name), node.source))
    touched = {n: graph.types[n] for n in (*node.inputs, *node.outputs) if n}
    types = {**touched, **builder.types}
    parts = (_with_source(_without_empty_parts(part, types), node) for part in builder.stages)
    made = [_item(part, rename, node) for part in parts]
    internal = {n: t for n, t in builder.types.items() if n not in rename}
    return [*made, *items], internal


def _empty(name: str, type: TensorType) -> Stage:
    """The stage of a tensor without elements, independent of the op."""
    axes = tuple(Axis(f"i{n}", extent) for n, extent in enumerate(type.shape))
    return Stage(name, axes, tuple(Sym(a.name) for a in axes), Number(0, type.dtype))


def _without_empty_parts(
    stage: Stage | Scatter, types: Mapping[str, TensorType]
) -> Stage | Scatter:
    """Reads of tensors without elements, which never happen, become zeros; an empty reduction
    becomes its identity, and a scatter without updates a copy."""
    if isinstance(stage, Scatter):
        none = any(axis.extent == 0 for axis in stage.stage.axes)
        return _copy(stage, types) if none else stage
    if any(axis.extent == 0 for axis in (*stage.axes, *stage.reduce)):
        dtype = types[stage.output].dtype
        start = 0 if stage.combine is None else identity(stage.combine, dtype)
        return Stage(stage.output, stage.axes, stage.write, Number(start, dtype))

    def visit(scalar: Scalar) -> Scalar:
        if isinstance(scalar, Read) and 0 in types[scalar.tensor].shape:
            return Number(0, scalar.dtype)
        return scalar

    return replace(stage, body=transform(stage.body, visit))


def _copy(item: Scatter, types: Mapping[str, TensorType]) -> Stage:
    """``item`` without updates."""
    type = types[item.initial]
    axes = tuple(Axis(f"i{n}", extent) for n, extent in enumerate(type.shape))
    point = tuple(Sym(a.name) for a in axes)
    return Stage(item.stage.output, axes, point, Read(item.initial, point, type.dtype))


def _with_source(stage: Stage | Scatter, node: Node) -> Stage | Scatter:
    """``stage`` with the user's nodes in messages about indices out of range."""
    place = node.source or (f"{type(node.op).__name__} ({node.outputs[0]})",)

    def visit(scalar: Scalar) -> Scalar:
        if not isinstance(scalar, Bind) or scalar.bound is None:
            return scalar
        return replace(scalar, bound=replace(scalar.bound, source=place))

    if isinstance(stage, Scatter):
        return replace(stage, stage=replace(stage.stage, body=transform(stage.stage.body, visit)))
    return replace(stage, body=transform(stage.body, visit))


def _item(part: Stage | Scatter, names: Mapping[str, str], node: Node) -> Item:
    if isinstance(part, Scatter):
        return rename_tensors(replace(part, source=node.source), names)
    return _kernel(rename_stage(part, names), node)


def _kernel(stage: Stage, node: Node) -> Kernel:
    inputs = tuple(dict.fromkeys(r.tensor for r in reads(stage.body)))
    return Kernel(type(node.op).__name__, inputs, (stage.output,), (stage,), node.source)


def _as_view(
    item: Item, types: Mapping[str, TensorType], dims: Bounds, parts: frozenset[str]
) -> Item:
    """A view if the kernel copies a row-major buffer element for element, all of it."""
    if not isinstance(item, Kernel) or len(item.stages) != 1 or item.outputs[0] in parts:
        return item
    stage = item.stages[0]
    body = stage.body
    if stage.reduce or not isinstance(body, Read):
        return item
    source, target = types[body.tensor], types[stage.output]
    if source.layout is not None or target.layout is not None:
        return item
    ranges = {**dims, **{a.name: loop_range(a.extent) for a in stage.axes}}
    covers = stage.write == tuple(Sym(a.name) for a in stage.axes)
    size = simplify(source.elements - target.elements, ranges)
    read = source.physical.offset(body.indices, source.shape)
    write = target.physical.offset(stage.write, target.shape)
    if covers and size == 0 and simplify(read - write, ranges) == 0:
        return View(stage.output, body.tensor, item.source)
    return item
