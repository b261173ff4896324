"""Local rewriting of graphs: rules applied by a worklist until none fires.

A rule looks at one node and returns replacements of its results, or None::

    def double_negation(node: Node, at: Rewriter) -> Replacement:
        match node.op, at.producer(node.inputs[0]):
            case Neg(), Node(Neg(), (x,)):
                return x
        return None

Nodes that a rule adds may read anything that is computed before the node it looks at.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

from modelcc.ir.builder import ConstantPool, as_array, infer_types
from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.graph_verifier import node_place
from modelcc.ir.index import Bounds
from modelcc.ir.naming import Names
from modelcc.ir.op import Builder, Op
from modelcc.ir.types import Array, DType, TensorType

Replacement: TypeAlias = str | tuple[str, ...] | None
"""Names of the values to use for a node's results; None: leave the node alone."""

Rule: TypeAlias = "Callable[[Node, Rewriter], Replacement]"

REWRITES_PER_NODE = 50
"""Rewrites per node after which rules are assumed not to terminate."""


def rewrite(graph: Graph, rules: Sequence[Rule], limit: int | None = None) -> Graph:
    """``graph`` with ``rules`` applied wherever they fire; names of inputs and outputs stay.

    Rules are tried in order, nodes first to last, until nothing changes or ``limit`` rewrites
    are done (to bisect a fault).  Dead nodes are removed.
    """
    return rewrite_counted(graph, rules, limit)[0]


def rewrite_counted(
    graph: Graph, rules: Sequence[Rule], limit: int | None = None
) -> tuple[Graph, Mapping[str, int]]:
    """As :func:`rewrite`, with the number of times each rule (by its name) fired.

    :class:`RuntimeError` if the rules do not terminate, or if a rule returns a value of another
    type.
    """
    at = Rewriter(graph)
    fired: Counter[str] = Counter()
    allowed = REWRITES_PER_NODE * (len(graph.nodes) + 10)
    changed = True
    while changed and (limit is None or fired.total() < limit):
        changed = False
        at.enqueue_all()
        while (number := at.next()) is not None:
            name = at.try_rules(number, rules)
            if name is None:
                continue
            changed = True
            fired[name] += 1
            if limit is not None and fired.total() >= limit:
                break
            if fired.total() > allowed:
                raise RuntimeError(f"rules do not come to an end: {dict(fired)}")
    return (at.graph() if fired else graph), fired


class Rewriter(Builder):
    """A graph being rewritten: what rules look at, and the builder they add nodes with.

    It is a :class:`~modelcc.ir.op.Builder`.  Nodes and constants made during a match that fails
    are dropped.  New nodes inherit the sources of all nodes they make dead.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._types = dict(graph.types)
        self._names = Names(graph.types)
        self._pool = ConstantPool(graph.constants)
        self._outputs = frozenset(graph.outputs)
        self._nodes: dict[int, Node] = {}
        self._place: dict[int, int] = {}
        self._producer: dict[str, int] = {}
        self._readers: dict[str, dict[int, None]] = {}
        self._queue: deque[int] = deque()
        self._queued: set[int] = set()
        self._added: list[int] = []
        self._next_number = 0
        self._current = 0
        for node in graph.nodes:
            self._current = self._next_number
            self._insert(node)

    # --- looking ---------------------------------------------------------------------------

    def producer(self, name: str) -> Node | None:
        """The node that computes ``name``; None for inputs, constants and absent operands."""
        number = self._producer.get(name)
        return None if number is None else self._nodes[number]

    def consumers(self, name: str) -> list[Node]:
        """Nodes that read ``name``."""
        return [self._nodes[n] for n in self._readers.get(name, ())]

    def uses(self, name: str) -> int:
        """Number of nodes that read ``name``, plus one if it is a graph output."""
        return len(self._readers.get(name, ())) + (name in self._outputs)

    def is_output(self, name: str) -> bool:
        """Whether ``name`` is a graph output."""
        return name in self._outputs

    def type_of(self, name: str) -> TensorType:
        """Type of a value."""
        return self._types[name]

    @property
    def bounds(self) -> Bounds:
        """Bounds of the graph's dimensions."""
        return self._graph.dims

    def constant_value(self, name: str) -> Array | None:
        """Data of a constant; None if ``name`` is not one."""
        constant = self._pool.by_name.get(name)
        return None if constant is None else constant.data

    # --- building --------------------------------------------------------------------------

    def add(self, op: Op, *inputs: str) -> tuple[str, ...]:
        """Append ``op`` before the current node; returns the names of its results."""
        operands = tuple(self._types[n] if n else None for n in inputs)
        source = self._nodes[self._current].source
        types = infer_types(op, operands, *source)
        outputs = tuple(self._names.fresh(type(op).__name__.lower()) for _ in types)
        self._types.update(zip(outputs, types, strict=True))
        self._added.append(self._insert(Node(op, inputs, outputs, source)))
        return outputs

    def constant(self, value: Array | float, dtype: DType | None = None) -> str:
        """A constant with this value; equal contents share a name."""
        constant = Constant(as_array(value, dtype))
        found = self._pool.find(constant)
        if found is not None:
            return found
        name = self._names.fresh("c")
        self._pool.add(name, constant)
        self._types[name] = constant.type
        return name

    # --- driving ---------------------------------------------------------------------------

    def enqueue_all(self) -> None:
        """Visit every node again, first to last."""
        self._queue = deque(sorted(self._nodes, key=lambda n: (self._place[n], n)))
        self._queued = set(self._queue)

    def next(self) -> int | None:
        """Number of the next node to visit; None when there is none."""
        while self._queue:
            number = self._queue.popleft()
            self._queued.discard(number)
            if number in self._nodes:
                return number
        return None

    def try_rules(self, number: int, rules: Sequence[Rule]) -> str | None:
        """Apply the first rule that changes the node; its name, or None."""
        node = self._nodes[number]
        self._current = number
        for rule in rules:
            self._added = []
            found = rule(node, self)
            if found is not None and self._replace(number, _as_tuple(found), rule_name(rule)):
                return rule_name(rule)
            for added in reversed(self._added):
                self._remove(added)
        return None

    def graph(self) -> Graph:
        """The current graph, in topological order, without unused constants."""
        nodes = self._ordered()
        read = {n for node in nodes for n in node.inputs} | self._outputs
        constants = {n: c for n, c in self._pool.by_name.items() if n in read}
        kept = (*self._graph.inputs, *constants, *(n for node in nodes for n in node.outputs))
        return replace(
            self._graph,
            nodes=tuple(nodes),
            types=MappingProxyType({n: self._types[n] for n in kept}),
            constants=MappingProxyType(constants),
        )

    # --- changing --------------------------------------------------------------------------

    def _insert(self, node: Node) -> int:
        number = self._next_number
        self._next_number += 1
        self._nodes[number] = node
        self._place[number] = self._place.get(self._current, self._current)
        for name in node.outputs:
            self._producer[name] = number
        for name in node.inputs:
            if name:
                self._readers.setdefault(name, {})[number] = None
        return number

    def _remove(self, number: int) -> Node:
        node = self._nodes.pop(number)
        for name in node.outputs:
            if self._producer.get(name) == number:
                del self._producer[name]
        for name in node.inputs:
            if name:
                self._readers[name].pop(number, None)
        return node

    def _set(self, number: int, node: Node) -> None:
        """Replace a node by one with the same results or the same operands."""
        place = self._place[number]
        self._remove(number)
        self._nodes[number] = node
        self._place[number] = place
        for name in node.outputs:
            self._producer[name] = number
        for name in node.inputs:
            if name:
                self._readers.setdefault(name, {})[number] = None

    def _replace(self, number: int, values: tuple[str, ...], rule: str) -> bool:
        """Replace the node's results by ``values``; whether that changes anything."""
        root = self._nodes[number]
        if not self._types_agree(root, values, rule):
            return False
        if all(self._stays(old, new) for old, new in zip(root.outputs, values, strict=True)):
            return False
        renamed: dict[str, str] = {}
        for old, new in zip(root.outputs, values, strict=True):
            renamed[new] = self._rewire(number, old, renamed.get(new, new))
        self._inherit(self._added, self._sweep([number, *self._added]))
        return True

    def _types_agree(self, root: Node, values: tuple[str, ...], rule: str) -> bool:
        for old, new in zip(root.outputs, values, strict=True):
            want, got = self._types[old], self._types[new]
            if want == got:
                continue
            differ = [(a, b) for a, b in zip(want.shape, got.shape, strict=False) if a != b]
            if want.rank == got.rank and want.dtype == got.dtype and not _contradict(differ):
                return False
            message = f"rule {rule} gives {got} for {old!r}, which is {want}"
            raise RuntimeError(f"{', '.join(node_place(root))}: {message}")
        return True

    def _stays(self, old: str, new: str) -> bool:
        """Whether no reader would change from ``old`` to ``new``."""
        return old == new or (
            not self._readers.get(old) and (old not in self._outputs or not self._renamable(new))
        )

    def _renamable(self, name: str) -> bool:
        return name in self._producer and name not in self._outputs

    def _rewire(self, number: int, old: str, new: str) -> str:
        """Let readers of ``old`` read ``new``; which of the two names it has from now on."""
        fresh = self._producer.get(new) in self._added
        if not self._renamable(new) or not (fresh or old in self._outputs):
            self._redirect(old, new)
            return new
        for reader in self._readers.get(old, ()):
            self._enqueue(reader)
        self._rename_result(number, old, self._names.fresh(old))
        self._rename_result(self._producer[new], new, old)
        self._redirect(new, old)
        return old

    def _rename_result(self, number: int, old: str, new: str) -> None:
        node = self._nodes[number]
        outputs = tuple(new if n == old else n for n in node.outputs)
        self._types[new] = self._types[old]
        self._set(number, replace(node, outputs=outputs))

    def _redirect(self, old: str, new: str) -> None:
        for reader in list(self._readers.get(old, ())):
            node = self._nodes[reader]
            self._set(reader, replace(node, inputs=_renamed(node.inputs, old, new)))
            self._enqueue(reader)

    def _sweep(self, numbers: Sequence[int]) -> list[tuple[int, Node]]:
        """Remove those nodes whose results are unused, and nodes that become dead thereby."""
        dead: list[tuple[int, Node]] = []
        pending = list(numbers)
        while pending:
            number = pending.pop()
            node = self._nodes.get(number)
            if node is None:
                continue
            if any(self.uses(n) for n in node.outputs):
                self._enqueue(number)
                continue
            dead.append((number, self._remove(number)))
            pending += [self._producer[n] for n in node.inputs if n in self._producer]
        return dead

    def _inherit(self, added: Sequence[int], dead: Sequence[tuple[int, Node]]) -> None:
        """Nodes of this rewrite inherit the sources of all nodes they make dead."""
        order = sorted(dead, key=lambda item: (self._place[item[0]], item[0]))
        source = tuple(dict.fromkeys(s for _, node in order for s in node.source))
        for number in added:
            if number in self._nodes:
                if source:
                    self._set(number, replace(self._nodes[number], source=source))
                self._enqueue(number)

    def _enqueue(self, number: int) -> None:
        if number not in self._queued:
            self._queued.add(number)
            self._queue.append(number)

    def _ordered(self) -> list[Node]:
        """Nodes in topological order, as close to their original order as possible."""
        done: set[int] = set()
        order: list[Node] = []
        for start in sorted(self._nodes, key=lambda n: (self._place[n], n)):
            stack = [start]
            while stack:
                number = stack[-1]
                before = [] if number in done else self._unplaced(number, done)
                if before:
                    stack += before
                    if len(stack) > 4 * len(self._nodes) + 4:
                        place = node_place(self._nodes[number])
                        raise ModelError("rewriting made a cycle", place)
                    continue
                stack.pop()
                if number not in done:
                    done.add(number)
                    order.append(self._nodes[number])
        return order

    def _unplaced(self, number: int, done: set[int]) -> list[int]:
        producers = (self._producer.get(n) for n in reversed(self._nodes[number].inputs))
        return [p for p in producers if p is not None and p not in done]


def rule_name(rule: Rule) -> str:
    """The name of a rule in counts and messages."""
    return getattr(rule, "__name__", type(rule).__name__)


def _as_tuple(values: str | tuple[str, ...]) -> tuple[str, ...]:
    return (values,) if isinstance(values, str) else values


def _contradict(extents: Sequence[tuple[object, object]]) -> bool:
    """Whether two numbers differ, rather than two expressions for a named extent."""
    return any(isinstance(a, int) and isinstance(b, int) for a, b in extents)


def _renamed(inputs: tuple[str, ...], old: str, new: str) -> tuple[str, ...]:
    return tuple(new if n == old else n for n in inputs)
