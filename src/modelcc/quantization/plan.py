"""Which nodes compute on integers, and which tensors are quantised for them.

Products do.  Other ops do if all their operands are integers and the readers of their result
expect such, so that no tensor is quantised that stays between floats.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from modelcc.ir.graph import Graph, Node
from modelcc.ir.quantized_form import QuantizedForm
from modelcc.ir.types import F32


@dataclass(frozen=True)
class QuantizedLayer:
    """An op that quantises its ``operands``, and the ops fused after it before ``result`` is
    quantised.

    ``name`` is the user's; ``weights`` are constant (empty: none).
    """

    name: str
    node: Node
    form: QuantizedForm
    operands: tuple[str, ...]
    weights: str
    result: str


@dataclass(frozen=True)
class QuantizationPlan:
    """``integer`` are the results of nodes that compute on integers; ``rounded`` maps a tensor to
    the one whose scale it shares."""

    integer: frozenset[str]
    rounded: Mapping[str, str]
    layers: tuple[QuantizedLayer, ...]

    def groups(self) -> dict[str, list[str]]:
        """Tensors that share a scale, by a representative."""
        found: dict[str, list[str]] = {}
        for name, root in self.rounded.items():
            found.setdefault(root, []).append(name)
        return found


def quantization_plan(
    graph: Graph, ops: Sequence[str] = (), skip: frozenset[str] = frozenset()
) -> QuantizationPlan:
    """The plan for ``ops`` (none: all) whose results or sources are not in ``skip``."""
    return _Planner(graph, ops, skip).plan()


class _Planner:
    def __init__(self, graph: Graph, ops: Sequence[str], skip: frozenset[str]) -> None:
        self.graph = graph
        self.producers, self.readers = graph.producers(), graph.consumers()
        self.forms = {
            node.outputs[0]: form
            for node in graph.nodes
            if (form := self._form(node, ops, skip)) is not None
        }

    def plan(self) -> QuantizationPlan:
        """A fixed point: until no op is left that would quantise float tensors."""
        while True:
            wanted = dict.fromkeys(self._wanted())
            lonely = [name for name in wanted if not self._is_fed(name, wanted.keys())]
            if not lonely:
                break
            for name in lonely:
                del self.forms[name]
        followed = {self._varying(n)[0]: n for n in wanted if self._follows(n, wanted.keys())}
        rounded = [t for n in wanted for t in self._varying(n) if followed.get(t) != n]
        shared = self._shared(list(wanted), dict.fromkeys(rounded))
        layers = (self._layer(n, followed) for n in wanted if not self.forms[n].moves)
        heads = tuple(layer for layer in layers if layer.node.outputs[0] not in followed.values())
        return QuantizationPlan(frozenset(wanted), shared, heads)

    def _form(self, node: Node, ops: Sequence[str], skip: frozenset[str]) -> QuantizedForm | None:
        if not node.op.has("quantize") or len(node.outputs) != 1:
            return None
        if ops and type(node.op).__name__ not in ops:
            return None
        if self.graph.types[node.outputs[0]].dtype != F32:
            return None
        return None if skip.intersection((*node.outputs, *node.source)) else node.op.quantize()

    def _wanted(self) -> list[str]:
        """Results of products, and of ops that connect them; in order."""
        wanted: dict[str, None] = {}
        for node in reversed(self.graph.nodes):
            name = node.outputs[0] if node.outputs else ""
            if name not in self.forms:
                continue
            readers = self.readers.get(name, ())
            asked = (r.outputs[0] for r in readers if r.outputs and r.outputs[0] in wanted)
            if self._is_product(name) or any(name in self._varying(r) for r in asked):
                wanted[name] = None
        return list(reversed(wanted))

    def _is_product(self, name: str) -> bool:
        return self.forms[name].weights is not None and bool(self._varying(name))

    def _is_fed(self, name: str, wanted: Set[str]) -> bool:
        """Whether an op's operands are, or can be, integers."""
        if self._is_product(name):
            return True
        sources = self._varying(name)
        inputs = () if self.forms[name].follows and len(sources) == 1 else self.graph.inputs
        return bool(sources) and all(s in wanted or s in inputs for s in sources)

    def _varying(self, name: str) -> tuple[str, ...]:
        """Activation operands of the node of ``name``, without constants."""
        node, form = self.producers[name], self.forms[name]
        numbers = list(form.operands(len(node.inputs)))
        numbers += [] if form.weights is None else [form.weights]
        names = (node.inputs[n] for n in numbers if n < len(node.inputs))
        return tuple(name for name in names if name and name not in self.graph.constants)

    def _follows(self, name: str, wanted: Set[str]) -> bool:
        """Whether it is fused: computed from its operand before that is quantised."""
        sources = self._varying(name)
        if not self.forms[name].follows or len(sources) != 1 or sources[0] not in self.forms:
            return False
        (source,) = sources
        once = len(self.readers[source]) == 1 and source not in self.graph.outputs
        return once and source in wanted and not self.forms[source].moves

    def _shared(self, wanted: Sequence[str], rounded: Mapping[str, None]) -> dict[str, str]:
        """The tensors mapped to those whose elements they consist of."""
        root = {name: name for name in rounded}

        def find(name: str) -> str:
            while root[name] != name:
                name = root[name]
            return name

        for name in wanted:
            if self.forms[name].moves and name in root:
                for source in self._varying(name):
                    root[find(source)] = find(name)
        return {name: find(name) for name in rounded}

    def _layer(self, name: str, followed: Mapping[str, str]) -> QuantizedLayer:
        node, form = self.producers[name], self.forms[name]
        result = name
        while result in followed:
            result = followed[result]
        given = "" if form.weights is None else node.inputs[form.weights]
        weights = given if given in self.graph.constants else ""
        source = node.source[0] if node.source else name
        return QuantizedLayer(source, node, form, self._varying(name), weights, result)
