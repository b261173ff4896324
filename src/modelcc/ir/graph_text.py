"""Text form of graphs: MLIR's generic form, read back to an equal graph.

    "mcc.graph"() ({
    ^bb0(%x: tensor<?x64xf32, ["batch"]>):
      %w = "mcc.constant"() {digest = "9f2c…"} : () -> tensor<64x8xf32>
      %y = "mcc.MatMul"(%x, %w) : (tensor<?x64xf32, ["batch"]>, tensor<64x8xf32>)
          -> tensor<?x8xf32, ["batch"]> loc("fc1")
      "mcc.return"(%y) : (tensor<?x8xf32, ["batch"]>) -> ()
    }) {name = "main", dims = {batch = [1, unit]}} : () -> ()

``mlir-opt --allow-unregistered-dialect`` accepts it.  Attributes are the fields of the op's
dataclass: integers, floats, booleans, strings, tuples, None (``unit``), element types, index
expressions (``#mcc.index<"2*seq">``) and sub-graphs (regions, ``#mcc.region<0>``).  Constants are
handles to their content's digest; small ones are spelled out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from modelcc.ir.call_form import encoded_call
from modelcc.ir.constant import Constant
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Bounds, Expr
from modelcc.ir.mlir_syntax import (
    ELEMENT_TEXT,
    dense_text,
    float_text,
    key_text,
    string_text,
    type_text,
    value_text,
)
from modelcc.ir.op import is_items
from modelcc.ir.structure import HostStep, Records, Structure
from modelcc.ir.types import DType

INLINE_ELEMENTS = 16


def print_graph(graph: Graph, inline: int = INLINE_ELEMENTS) -> str:
    """The text of ``graph``; constants of at most ``inline`` elements are spelled out.

    ``TypeError`` if an op has an attribute of a type that has no text form.
    """
    return "\n".join(_Printer(graph, inline, 0).lines()) + "\n"


def constants_by_digest(graph: Graph) -> dict[str, Constant]:
    """The constants of a graph and its sub-graphs as ``parse_graph`` wants them."""
    found = {c.digest: c for c in (*graph.constants.values(), *graph.initial.values())}
    for node in graph.nodes:
        for value in node.op.attributes().values():
            found |= constants_by_digest(value) if isinstance(value, Graph) else {}
    return found


@dataclass(frozen=True)
class _Printer:
    """Prints one graph, ``depth`` graphs inside the outermost."""

    graph: Graph
    inline: int
    depth: int

    def lines(self) -> Iterator[str]:
        indent = "    " * self.depth
        yield f'{indent}"mcc.graph"() ({{'
        for line in self._body():
            yield indent + line
        name, dims = string_text(self.graph.name), _dims_text(self.graph.dims)
        yield f"{indent}}}) {{name = {name}, dims = {dims}{self._interface()}}} : () -> ()"

    def _interface(self) -> str:
        interface = self.graph.interface
        if interface is None:
            return ""
        inputs, outputs = map(_structures_text, (interface.inputs, interface.outputs))
        strings, texts = (attribute_text(t, []) for t in (interface.strings, interface.texts))
        known = f", strings = {strings}, texts = {texts}" if interface.strings else ""
        known += f", steps = {_steps_text(interface.steps)}" if interface.steps else ""
        known += f", states = {self._states()}" if interface.states else ""
        if interface.call is not None:
            known += f", call = {attribute_text(encoded_call(interface.call), [])}"
        return f", interface = {{inputs = {inputs}, outputs = {outputs}{known}}}"

    def _states(self) -> str:
        """Input and output of each state, and the digest of its initial value."""
        interface, initial = self.graph.interface, self.graph.initial
        found: list[str] = []
        for name, state in () if interface is None else interface.states.items():
            digest = initial[name].digest if state.given else None
            text = attribute_text((state.input, state.output, digest), [])
            found.append(f"{key_text(name)} = {text}")
        return "{" + ", ".join(found) + "}"

    def _body(self) -> Iterator[str]:
        graph, types = self.graph, self.graph.types
        arguments = ", ".join(f"{self._value(n)}: {type_text(types[n])}" for n in graph.inputs)
        yield f"^bb0({arguments}):" if arguments else "^bb0:"
        for name, constant in graph.constants.items():
            yield f"  {self._constant(name, constant)}"
        if any("" in node.inputs for node in graph.nodes):
            yield f'  {self._value("")} = "mcc.none"() : () -> none'
        for node in graph.nodes:
            yield from self._node(node)
        signature = ", ".join(type_text(types[n]) for n in graph.outputs)
        yield f'  "mcc.return"({self._values(graph.outputs)}) : ({signature}) -> ()'

    def _value(self, name: str) -> str:
        return value_text(name, self.depth)

    def _values(self, names: Sequence[str]) -> str:
        return ", ".join(map(self._value, names))

    def _constant(self, name: str, constant: Constant) -> str:
        data, type = constant.data, self.graph.types[name]
        if type.dtype.kind not in ("string", "complex") and 0 < data.size <= self.inline:
            plain = type_text(type.with_layout(None))
            attribute = f"value = dense<{dense_text(data)}> : {plain}"
        else:
            attribute = f"digest = {string_text(constant.digest)}"
        return f'{self._value(name)} = "mcc.constant"() {{{attribute}}} : () -> {type_text(type)}'

    def _node(self, node: Node) -> Iterator[str]:
        regions: list[Graph] = []
        pairs = [(k, attribute_text(v, regions)) for k, v in node.op.attributes().items()]
        attributes = ", ".join(f"{key_text(k)} = {v}" for k, v in pairs)
        call = f"{string_text(node.op.mnemonic())}({self._values(node.inputs)})"
        head = f"  {self._values(node.outputs)} = {call}"
        tail = f" {{{attributes}}}" if attributes else ""
        tail += f" : {_signature(self.graph, node)}{_location(node)}"
        if not regions:
            yield head + tail
            return
        yield head + " ({"
        for n, region in enumerate(regions):
            yield from _Printer(region, self.inline, self.depth + 1).lines()
            yield "  }, {" if n + 1 < len(regions) else "  })" + tail


def _dims_text(dims: Bounds) -> str:
    def bound(value: object) -> str:
        return attribute_text(value, [])

    ranges = (f"{key_text(n)} = [{bound(r.lo)}, {bound(r.hi)}]" for n, r in dims.items())
    return "{" + ", ".join(ranges) + "}"


def _structures_text(structures: Mapping[str, Structure]) -> str:
    items = (f"{key_text(n)} = {_structure_text(s)}" for n, s in structures.items())
    return "{" + ", ".join(items) + "}"


def _steps_text(steps: Sequence[HostStep]) -> str:
    return "[" + ", ".join(map(_step_text, steps)) + "]"


def _step_text(step: HostStep) -> str:
    """Function, inputs, outputs, then names and values of the settings."""
    settings = tuple(item for pair in step.settings.items() for item in pair)
    return attribute_text((step.function, step.inputs, step.outputs, settings), [])


def _structure_text(structure: Structure) -> str:
    match structure:
        case Records(keys, tensor):
            return f"{{keys = {attribute_text(keys, [])}, tensor = {string_text(tensor)}}}"
        case tuple():
            return "[" + ", ".join(map(_structure_text, structure)) + "]"
        case _:
            return attribute_text(structure, [])


def _signature(graph: Graph, node: Node) -> str:
    types = (type_text(t) if t is not None else "none" for t in graph.input_types(node))
    results = [type_text(graph.types[n]) for n in node.outputs]
    joined = results[0] if len(results) == 1 else f"({', '.join(results)})"
    return f"({', '.join(types)}) -> {joined}"


def _location(node: Node) -> str:
    if not node.source:
        return ""
    names = ", ".join(map(string_text, node.source))
    return f" loc({names})" if len(node.source) == 1 else f" loc(fused[{names}])"


def attribute_text(value: object, regions: list[Graph]) -> str:
    """An attribute's text; sub-graphs are appended to ``regions`` and referred to by number."""
    match value:
        case None:
            return "unit"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return float_text(value)
        case str():
            return string_text(value)
        case DType():
            return ELEMENT_TEXT[value]
        case Expr():
            return f"#mcc.index<{string_text(str(value))}>"
        case _ if is_items(value):
            return "[" + ", ".join(attribute_text(v, regions) for v in value) + "]"
        case Graph():
            regions.append(value)
            return f"#mcc.region<{len(regions) - 1}>"
        case _:
            raise TypeError(f"an attribute of type {type(value).__name__} has no text form")
