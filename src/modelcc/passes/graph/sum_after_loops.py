"""Sums of products over the iterations of a loop as one product after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from types import MappingProxyType

from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Index, Sym, product
from modelcc.ir.naming import Names
from modelcc.ir.op import Op
from modelcc.ir.types import TensorType
from modelcc.ops.arithmetic import Add
from modelcc.ops.broadcast import ReduceSum, Reshape
from modelcc.ops.control import Loop
from modelcc.ops.matmul import MatMul
from modelcc.ops.shape import Concat, Transpose
from modelcc.ops.slicing import At, Unslice
from modelcc.passes.graph.dead_code import with_nodes
from modelcc.passes.graph.loop_parts import LoopParts, LoopState, Slices

LINEAR = (Add, Concat, Reshape, ReduceSum, Transpose, Unslice)
"""Linear ops: their result for a sum is the sum of their results."""


@dataclass(frozen=True)
class SumAfterLoops:
    """A state that accumulates a product per iteration becomes one product of the stacked factors
    after the loop; so do sums of several such, moved and concatenated.

    Factors that are not slices of stacked tensors are stacked, as long as all of them together are
    no larger than the tensors stacked anyway.  So gradients of recurrent weights are single
    products.

    before::

        "mcc.graph"() ({
        ^bb0(%w: tensor<4x5xf32>, %x: tensor<3x2x4xf32>, %y: tensor<3x2x5xf32>):
          %sum = "mcc.Loop"(%w, %x, %y) ({
            "mcc.graph"() ({
            ^bb0(%s: tensor<4x5xf32>, %u: tensor<3x2x4xf32>, %v: tensor<3x2x5xf32>):
              %a = "mcc.At"(%u) {axis = 0, position = #mcc.index<"t">}
              %b = "mcc.At"(%v) {axis = 0, position = #mcc.index<"t">}
              %c = "mcc.Transpose"(%a) {perm = [1, 0]}
              %p = "mcc.MatMul"(%c, %b)
              %n = "mcc.Add"(%s, %p)
              "mcc.return"(%n)
            }) {name = "body", dims = {t = [0, unit]}} : () -> ()
          }) {body = #mcc.region<0>, counter = "t", trips = 3, states = 1}
          "mcc.return"(%sum)
        })

    after::

        "mcc.graph"() ({
        ^bb0(%w: tensor<4x5xf32>, %x: tensor<3x2x4xf32>, %y: tensor<3x2x5xf32>):
          %u = "mcc.Reshape"(%x) {shape = [6, 4]}
          %a = "mcc.Transpose"(%u) {perm = [1, 0]}
          %b = "mcc.Reshape"(%y) {shape = [6, 5]}
          %p = "mcc.MatMul"(%a, %b)
          %sum = "mcc.Add"(%w, %p)
          "mcc.return"(%sum)
        })
    """

    def __call__(self, graph: Graph) -> Graph:
        if not any(isinstance(node.op, Loop) for node in graph.nodes):
            return graph
        types, names = dict(graph.types), Names(graph.types)
        nodes: list[Node] = []
        for node in graph.nodes:
            op = node.op
            if isinstance(op, Loop) and op.trips is not None and not op.conditional:
                nodes += _Sums(node, op, op.trips, types, names).nodes
            else:
                nodes.append(node)
        whole = replace(graph, types=MappingProxyType(types))
        return with_nodes(whole, tuple(nodes))


@dataclass(frozen=True)
class _Factor:
    """An operand of the product: ``value`` of the body is summed over ``axis``, and its last axes
    are swapped for that if ``turned``."""

    value: str
    axis: int
    turned: bool


@dataclass(frozen=True)
class _Stack:
    """An outer tensor of the slices of all iterations along ``axis``."""

    name: str
    axis: int
    backwards: bool


class _Sums:
    """A loop without the states that are sums of products; ``nodes`` are it and its successors."""

    def __init__(
        self, node: Node, op: Loop, trips: Index, types: dict[str, TensorType], names: Names
    ) -> None:
        self._parts, self._trips = LoopParts.of(node, op), trips
        self._types, self._names = types, names
        self._made = {name: n for n in self._parts.nodes for name in n.outputs}
        self._room = self._stacked_already()
        self._after: list[Node] = []
        for state in list(self._parts.states):
            self._sum(state)
        loop = [self._parts.whole()] if self._parts.states or self._parts.slices else []
        self.nodes = [*loop, *self._after] if self._after else [node]

    def _sum(self, state: LoopState) -> None:
        """Moves ``state`` out of the loop, if its increments can be summed after it."""
        add = self._made.get(state.next)
        if add is None or not isinstance(add.op, Add) or state.name not in add.inputs:
            return
        name = add.inputs[add.inputs[0] == state.name]
        leaves = self._leaves(name)
        alone = self._uses(state.name) == self._uses(state.next) == 1
        alike = self._parts.types[name] == self._parts.types[state.name]
        if not (leaves and alone and alike and self._affords(leaves)):
            return
        source = self._parts.node.source
        inputs = state.initial, self._total(name)
        self._after.append(Node(Add(), inputs, (state.last,), source))
        self._parts.states.remove(state)

    def _leaves(self, name: str) -> list[str]:
        """The values from which sums and data movement compute ``name``: products, and values
        stacked anyway; none if there are others."""
        if self._known(name):
            return [name]
        node = self._made.get(name)
        if node is None or self._uses(name) > 1:
            return []
        if isinstance(node.op, MatMul):
            return [name] if self._factors(node) else []
        same = len({self._parts.types[n] for n in node.inputs}) == 1
        if not isinstance(node.op, LINEAR) or (isinstance(node.op, Add) and not same):
            return []
        found = [self._leaves(n) for n in node.inputs]
        return [leaf for leaves in found for leaf in leaves] if all(found) else []

    def _total(self, name: str) -> str:
        """The sum of ``name`` over all iterations, after the loop."""
        known = [*self._known(name).values()]
        if known:
            return self._emit(ReduceSum((known[0].axis,), False), known[0].name)
        node = self._made[name]
        if not isinstance(node.op, MatMul):
            return self._emit(node.op, *map(self._total, node.inputs))
        factors = self._factors(node)
        order = self._order(factors)
        stacks = [self._known(f.value).get(order) or self._stacked(f, order) for f in factors]
        return self._emit(MatMul(), *map(self._joined, factors, stacks))

    def _factors(self, node: Node) -> tuple[_Factor, ...]:
        """The operands of a product, if they can be joined along its reduction."""
        a, b = (self._parts.types[n].shape for n in node.inputs)
        alike = len(a) == len(b) >= 2 and a[:-2] == b[:-2]
        sides = zip(node.inputs, (len(a) - 1, len(a) - 2), strict=True)
        found = tuple(self._factor(n, axis) for n, axis in sides) if alike else ()
        return found if all(f.value in self._made for f in found) else ()

    def _order(self, factors: Sequence[_Factor]) -> bool:
        """Whether slices are in reverse order, so that most factors are stacked already."""
        return sum(True in k for k in map(self._known, (f.value for f in factors))) > sum(
            False in k for k in map(self._known, (f.value for f in factors))
        )

    def _uses(self, name: str) -> int:
        parts = self._parts
        inside = sum(node.inputs.count(name) for node in parts.nodes)
        return inside + [*(s.next for s in parts.states), *(s.value for s in parts.slices)].count(
            name
        )

    def _factor(self, name: str, axis: int) -> _Factor:
        node, rank = self._made.get(name), self._parts.types[name].rank
        swap = Transpose((*range(rank - 2), rank - 1, rank - 2))
        if node is None or node.op != swap:
            return _Factor(name, axis, False)
        return _Factor(node.inputs[0], 2 * rank - 3 - axis, True)

    def _affords(self, leaves: Sequence[str]) -> bool:
        """Whether the values to be stacked fit the budget, from which they are then deducted."""
        shapes: list[tuple[Index, ...]] = []
        for node in (self._made[name] for name in leaves if not self._known(name)):
            factors = self._factors(node)
            order = self._order(factors)
            new = [f.value for f in factors if order not in self._known(f.value)]
            shapes += [self._parts.types[name].shape for name in dict.fromkeys(new)]
        numbers = all(isinstance(e, int) for shape in shapes for e in shape)
        needed = _elements(shapes)
        if shapes and not (numbers and needed <= self._room):
            return False
        self._room -= needed
        return True

    def _stacked_already(self) -> int:
        """Elements of all slices that an iteration reads and writes, ignoring named extents."""
        read = [n.outputs[0] for n in self._parts.nodes if isinstance(n.op, At)]
        names = dict.fromkeys((*filter(self._known, read), *(s.value for s in self._parts.slices)))
        return _elements([self._parts.types[name].shape for name in names])

    def _known(self, name: str) -> dict[bool, _Stack]:
        """Stacked tensors of a value's slices, by whether their order is reversed."""
        found = {
            s.backwards: _Stack(s.stacked, s.axis, s.backwards)
            for s in self._parts.slices
            if s.value == name
        }
        node, step = self._made.get(name), Sym(self._parts.op.counter)
        if node is None or not isinstance(node.op, At):
            return found
        outer = self._parts.captured.get(node.inputs[0])
        position, axis = node.op.position, node.op.axis
        whole = outer and self._types[outer].shape[axis] == self._trips
        if outer and whole and position in (step, self._trips - 1 - step):
            found[position != step] = _Stack(outer, axis, position != step)
        return found

    def _stacked(self, factor: _Factor, backwards: bool) -> _Stack:
        """A factor stacked by the loop."""
        type, axis = self._parts.types[factor.value], factor.axis
        name = self._names.fresh(factor.value)
        shape = (*type.shape[:axis], self._trips, *type.shape[axis:])
        self._types[name] = TensorType(shape, type.dtype)
        self._parts.slices.append(Slices(factor.value, axis, backwards, name))
        return _Stack(name, axis, backwards)

    def _joined(self, factor: _Factor, stack: _Stack) -> str:
        """The factor of the joint product of all iterations."""
        name, axis = stack.name, factor.axis
        rank = self._types[name].rank
        if stack.axis != axis:
            others = [i for i in range(rank) if i != stack.axis]
            name = self._emit(Transpose((*others[:axis], stack.axis, *others[axis:])), name)
        shape = self._types[name].shape
        rows = product(shape[axis : axis + 2])
        name = self._emit(Reshape((*shape[:axis], rows, *shape[axis + 2 :])), name)
        swap = (*range(rank - 3), rank - 2, rank - 3)
        return self._emit(Transpose(swap), name) if factor.turned else name

    def _emit(self, op: Op, *inputs: str) -> str:
        name = self._names.fresh(type(op).__name__.lower())
        (self._types[name],) = op.infer(*(self._types[n] for n in inputs))
        self._after.append(Node(op, inputs, (name,), self._parts.node.source))
        return name


def _elements(shapes: Sequence[Sequence[Index]]) -> int:
    """Elements of tensors, ignoring named extents."""
    return sum(prod(e for e in shape if isinstance(e, int)) for shape in shapes)
