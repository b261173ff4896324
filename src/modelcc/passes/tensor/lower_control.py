"""Lowering of control flow: bodies become nested items that read the tensors around them.

Before (graph) and after (tensor)::

    %last, %ys = "mcc.Loop"(%first, %w) {counter = "t", trips = 8, axes = [0], …}

    repeat [t < 8] carry(%s: f32[4] = %first then %n last %last) fill(%ys: f32[8, 4]) {
      …                                  the body's nodes, on %s and %w
      kernel @Stack(%y: f32[4]) -> (%ys: f32[8, 4]) { %ys[t, i]: f32[8, 4] = [i < 4] %y[i] }
    }
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from modelcc.ir.builder import ConstantPool
from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.naming import Names
from modelcc.ir.region import Branch, Carry, Repeat
from modelcc.ir.tensor import Axis, Item, Kernel, Read, Scatter, Stage, item_outputs
from modelcc.ir.tensor_renaming import rename_tensors
from modelcc.ir.types import TensorType
from modelcc.ops.control import Control, If, Loop
from modelcc.ops.runtime_size import with_fresh_sizes


@dataclass
class Lowered:
    """Items, the types and constants of the tensors in them, and the sizes that they read."""

    items: list[Item]
    types: dict[str, TensorType]
    constants: dict[str, Constant]
    dims: dict[str, Range]


@dataclass(frozen=True)
class ProgramScope:
    """Names of the whole program, its deduplicated constants, and its sizes."""

    names: Names
    pool: ConstantPool
    sizes: Names

    @staticmethod
    def of(graph: Graph) -> ProgramScope:
        """The scope of a model."""
        return ProgramScope(Names(graph.types), ConstantPool(graph.constants), Names(graph.dims))


LowerItems = Callable[[Graph, ProgramScope], Lowered]


def lower_control(node: Node, op: Control, scope: ProgramScope, lower: LowerItems) -> Lowered:
    """The branch or loop of a node; ``lower`` lowers graphs."""
    match op:
        case If():
            return _lower_if(node, op, scope, lower)
        case Loop():
            return _lower_loop(node, op, scope, lower)
        case _:
            raise TypeError(f"no lowering of {op.mnemonic()}")


def _lower_if(node: Node, op: If, scope: ProgramScope, lower: LowerItems) -> Lowered:
    condition, *captured = node.inputs
    result = Lowered([], {}, {}, {})
    sides: list[tuple[Item, ...]] = []
    for graph in (op.then, op.other):
        body = _named(graph, captured, scope)
        side = _Body(lower(body, scope), body, node)
        for value, name in zip(body.outputs, node.outputs, strict=True):
            side.provide(value, name)
        sides.append(side.add_to(result))
    result.items.append(Branch(condition, node.outputs, sides[0], sides[1], node.source))
    return result


def _lower_loop(node: Node, op: Loop, scope: ProgramScope, lower: LowerItems) -> Lowered:
    initial, captured = node.inputs[: op.states], node.inputs[op.states :]
    last, filled = node.outputs[: op.states], node.outputs[op.states :]
    states = [scope.names.fresh(f"{name}.state") for name in last]
    body = _named(op.body, [*states, *captured], scope)
    inner = _Body(lower(body, scope), body, node)
    following = [scope.names.fresh(f"{name}.next") for name in last]
    for number, name in enumerate(filled):
        inner.stack(body.outputs[op.states + number], name, op.axes[number], op.place(number))
    for value, name in zip(body.outputs, following, strict=False):
        inner.provide(value, name)
    result = Lowered([], {}, {}, {})
    items = inner.add_to(result)
    carries = tuple(map(Carry, states, initial, following, last))
    condition = states[0] if op.conditional else None
    loop = Repeat(op.counter, op.trips, carries, filled, items, condition, node.source)
    result.items.append(loop)
    return result


def _named(graph: Graph, operands: Sequence[str], scope: ProgramScope) -> Graph:
    """``graph`` with names of the program: its inputs are ``operands``, the rest is fresh."""
    graph = with_fresh_sizes(graph, scope.sizes)
    names = dict(zip(graph.inputs, operands, strict=True))
    constants: dict[str, Constant] = {}
    for name, constant in graph.constants.items():
        shared = scope.pool.find(constant)
        if shared is None:
            shared = scope.names.fresh(name)
            scope.pool.add(shared, constant)
        names[name] = shared
        constants[shared] = constant
    for node in graph.nodes:
        names |= {name: scope.names.fresh(name) for name in node.outputs}
    nodes = tuple(
        replace(
            node,
            inputs=tuple(names.get(n, n) for n in node.inputs),
            outputs=tuple(names[n] for n in node.outputs),
        )
        for node in graph.nodes
    )
    return replace(
        graph,
        inputs=tuple(operands),
        outputs=tuple(names[n] for n in graph.outputs),
        nodes=nodes,
        types={names[n]: t for n, t in graph.types.items()},
        constants=constants,
    )


class _Body:
    """A lowered body that has to define tensors of given names."""

    def __init__(self, lowered: Lowered, graph: Graph, node: Node) -> None:
        self._lowered = lowered
        self._types: Mapping[str, TensorType] = graph.types
        self._source = node.source
        self._ends: list[Kernel] = []
        self._renamed: dict[str, str] = {}
        self._added: dict[str, TensorType] = {}

    def provide(self, value: str, name: str) -> None:
        """Compute ``value`` as ``name``: renamed if only kernels define it, else by a copy."""
        self._added[name] = self._types[value].with_layout(None)
        if value not in self._renamed and self._is_computed(value):
            self._renamed[value] = name
        else:
            self._copy(value, name, None, 0)

    def stack(self, value: str, name: str, axis: int, position: Index) -> None:
        """Write ``value`` at ``position`` along the new ``axis`` of ``name``."""
        self._copy(value, name, axis, position)

    def add_to(self, result: Lowered) -> tuple[Item, ...]:
        """The items; their tensors and constants are added to ``result``."""
        renamed, given = self._renamed, self._lowered
        items = tuple(rename_tensors(item, renamed) for item in (*given.items, *self._ends))
        result.types |= {renamed.get(n, n): t for n, t in given.types.items()}
        result.types |= self._added
        result.constants |= given.constants
        result.dims |= given.dims
        return items

    def _is_computed(self, value: str) -> bool:
        """Whether only kernels or scatters of the body define ``value``."""
        items = self._lowered.items
        writers = [item for item in items if value in item_outputs(item)]
        return bool(writers) and all(isinstance(item, Kernel | Scatter) for item in writers)

    def _copy(self, value: str, name: str, axis: int | None, position: Index) -> None:
        type = self._types[value]
        axes = tuple(Axis(f"c{n}", e) for n, e in enumerate(type.shape))
        point: tuple[Index, ...] = tuple(Sym(a.name) for a in axes)
        write = point if axis is None else (*point[:axis], position, *point[axis:])
        stage = Stage(name, axes, write, Read(value, point, type.dtype))
        label = "Copy" if axis is None else "Stack"
        self._ends.append(Kernel(label, (value,), (name,), (stage,), self._source))
