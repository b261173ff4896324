"""Reading graphs from text; see :mod:`modelcc.ir.graph_text` for the form."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeGuard

import numpy as np

from modelcc.ir.builder import infer_types
from modelcc.ir.call_form import CallForm, decoded_call
from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph, Node
from modelcc.ir.index import Expr, Range
from modelcc.ir.mlir_syntax import ELEMENT_TYPES, Scanner, value_name
from modelcc.ir.op import Dialect, Op, is_items
from modelcc.ir.structure import HostStep, Interface, ModelState, Records, Setting, Structure
from modelcc.ir.types import Array, TensorType

Resolve = Callable[[str, TensorType], Constant]
"""Finds constant data from its digest (or another handle) and type."""


def parse_graph(
    text: str, constants: Mapping[str, Constant] | Resolve, dialects: Sequence[Dialect]
) -> Graph:
    """The graph that ``text`` spells: the inverse of ``print_graph``.

    Op signatures may be left out; types are then inferred.  Attributes left out take the op's
    defaults.  :class:`ModelError` with line and column if the text is malformed, names an unknown
    op or a constant that ``constants`` lacks.  Does not verify: see ``verify_graph``.
    """
    resolve = resolver(constants)
    ops = {op.mnemonic(): op for dialect in dialects for op in dialect.ops}
    parser = _GraphParser(Scanner(text), resolve, ops)
    graph = parser.graph()
    if parser.at.end != len(text):
        raise parser.at.error("expected the end of the text")
    return graph


def resolver(constants: Mapping[str, Constant] | Resolve) -> Resolve:
    """A function that finds constants, from a mapping by digest or a function.

    Constants without elements need not be listed.
    """
    if callable(constants):
        return constants

    def resolve(digest: str, type: TensorType) -> Constant:
        found = constants.get(digest)
        if found is None and 0 in type.shape and type.is_static:
            return Constant(np.zeros(type.static_shape(), type.dtype.numpy))
        if found is None:
            raise ModelError(f"no constant with digest {digest!r} is given for {type}")
        return found

    return resolve


class _GraphBody:
    """The parse state of one graph."""

    def __init__(self) -> None:
        self.inputs: list[str] = []
        self.nodes: list[Node] = []
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, Constant] = {}


class _GraphParser:
    def __init__(self, at: Scanner, resolve: Resolve, ops: Mapping[str, type[Op]]) -> None:
        self.at = at
        self._resolve = resolve
        self._ops = ops

    def graph(self) -> Graph:
        """``"mcc.graph"() ({ … }) {name = …, dims = …} : () -> ()``."""
        at = self.at
        for literal in ('"mcc.graph"', "(", ")", "(", "{"):
            at.expect(literal)
        body = _GraphBody()
        self._arguments(body)
        outputs = self._statements(body)
        at.expect("}")
        at.expect(")")
        attributes = self._attributes([]) if at.accept("{") else {}
        if at.accept(":"):
            for literal in ("(", ")", "->", "(", ")"):
                at.expect(literal)
        dims = {n: self._range(b) for n, b in self._fields(attributes.get("dims", {})).items()}
        interface = attributes.get("interface")
        seen = None if interface is None else self._interface(self._fields(interface))
        return Graph(
            str(attributes.get("name", "main")),
            tuple(body.inputs),
            outputs,
            tuple(body.nodes),
            MappingProxyType(body.types),
            MappingProxyType(body.constants),
            MappingProxyType(dims),
            seen,
            {} if interface is None else self._initial(self._fields(interface), body.types),
        )

    def _arguments(self, body: _GraphBody) -> None:
        at = self.at
        if at.try_take("label") is None:
            return
        if at.accept("("):
            while not at.accept(")"):
                name = value_name(at.take("value"))
                at.expect(":")
                body.inputs.append(name)
                body.types[name] = at.type()
                at.accept(",")
        at.expect(":")

    def _statements(self, body: _GraphBody) -> tuple[str, ...]:
        at = self.at
        while True:
            outputs = self._values()
            if outputs:
                at.expect("=")
            mnemonic = at.string()
            match mnemonic:
                case "mcc.return":
                    return self._return(body)
                case "mcc.constant" if len(outputs) == 1:
                    self._constant(body, outputs[0])
                case "mcc.none" if outputs == ("",):
                    for literal in ("(", ")", ":", "(", ")", "->", "none"):
                        at.expect(literal)
                case _:
                    self._node(body, mnemonic, outputs)

    def _values(self) -> tuple[str, ...]:
        names: list[str] = []
        while (spelling := self.at.try_take("value")) is not None:
            names.append(value_name(spelling))
            if not self.at.accept(","):
                break
        return tuple(names)

    def _operands(self) -> tuple[str, ...]:
        self.at.expect("(")
        names = self._values()
        self.at.expect(")")
        return names

    def _return(self, body: _GraphBody) -> tuple[str, ...]:
        outputs = self._operands()
        if self.at.accept(":"):
            self._signature()
        for name in outputs:
            if name not in body.types:
                raise self.at.error(f"graph output {name!r} is not defined")
        return outputs

    def _constant(self, body: _GraphBody, name: str) -> None:
        self._operands()
        attributes = self._attributes([]) if self.at.accept("{") else {}
        types = self._signature()[1] if self.at.accept(":") else ()
        value = attributes.get("value")
        if isinstance(value, Constant):
            body.constants[name] = value
            body.types[name] = types[0] if types else value.type
            return
        digest = attributes.get("digest")
        if not isinstance(digest, str) or len(types) != 1:
            raise self.at.error(f"constant {name!r} needs a value, or a digest and a type")
        try:
            body.constants[name] = self._resolve(digest, types[0])
        except ModelError as error:
            raise self.at.error(error.message) from error
        body.types[name] = types[0]

    def _node(self, body: _GraphBody, mnemonic: str, outputs: tuple[str, ...]) -> None:
        at = self.at
        inputs = self._operands()
        regions = self._regions() if at.accept("(") else []
        attributes = self._attributes(regions) if at.accept("{") else {}
        signature = self._signature() if at.accept(":") else None
        source = self._location() if at.accept("loc") else ()
        op = self._op(mnemonic, attributes)
        missing = [n for n in inputs if n and n not in body.types]
        if missing:
            raise at.error(f"{mnemonic} reads {missing[0]!r}, which is not defined")
        operands = [body.types[n] if n else None for n in inputs]
        types = infer_types(op, operands, *source) if signature is None else signature[1]
        if len(types) != len(outputs):
            raise at.error(f"{mnemonic} has {len(types)} result types for {len(outputs)} results")
        body.nodes.append(Node(op, inputs, outputs, source))
        body.types.update(zip(outputs, types, strict=True))

    def _op(self, mnemonic: str, attributes: Mapping[str, object]) -> Op:
        cls = self._ops.get(mnemonic)
        if cls is None:
            raise self.at.error(f"no given dialect has an op {mnemonic!r}")
        try:
            return cls(**attributes)
        except TypeError as error:
            raise self.at.error(f"{mnemonic} does not have these attributes: {error}") from error

    def _regions(self) -> list[Graph]:
        regions: list[Graph] = []
        while not self.at.accept(")"):
            self.at.expect("{")
            regions.append(self.graph())
            self.at.expect("}")
            self.at.accept(",")
        return regions

    def _signature(self) -> tuple[list[TensorType | None], tuple[TensorType, ...]]:
        operands = self._types()
        self.at.expect("->")
        results = self._types() if self.at.text.startswith("(", self.at.end) else [self.at.type()]
        return operands, tuple(t for t in results if t is not None)

    def _types(self) -> list[TensorType | None]:
        self.at.expect("(")
        types: list[TensorType | None] = []
        while not self.at.accept(")"):
            types.append(None if self.at.accept("none") else self.at.type())
            self.at.accept(",")
        return types

    def _fields(self, attribute: object) -> Mapping[str, object]:
        if not _is_fields(attribute):
            raise self.at.error("expected a dictionary")
        return attribute

    def _items(self, attribute: object) -> tuple[object, ...]:
        if not is_items(attribute):
            raise self.at.error("expected a list")
        return attribute

    def _texts(self, attribute: object) -> tuple[str, ...]:
        return tuple(map(str, self._items(attribute)))

    def _range(self, attribute: object) -> Range:
        low, high = self._items(attribute)
        if not (isinstance(low, int | Expr | None) and isinstance(high, int | Expr | None)):
            raise self.at.error("the bounds of a dimension are numbers, or none")
        return Range(low, high)

    def _interface(self, attribute: Mapping[str, object]) -> Interface:
        inputs, outputs = (
            {name: self._structure(v) for name, v in self._fields(attribute[side]).items()}
            for side in ("inputs", "outputs")
        )
        steps = tuple(map(self._host_step, self._items(attribute.get("steps", ()))))
        strings, texts = (self._texts(attribute.get(key, ())) for key in ("strings", "texts"))
        states = {n: self._state(v) for n, v in self._fields(attribute.get("states", {})).items()}
        call = attribute.get("call")
        form = None if call is None else self._call(call)
        return Interface(inputs, outputs, strings, texts, steps, states, form)

    def _call(self, attribute: object) -> CallForm:
        try:
            return decoded_call(attribute)
        except (TypeError, ValueError) as error:
            raise self.at.error(f"the form of a call cannot be read: {error}") from error

    def _state(self, attribute: object) -> ModelState:
        before, after, digest = self._items(attribute)
        return ModelState(str(before), str(after), digest is not None)

    def _initial(
        self, attribute: Mapping[str, object], types: Mapping[str, TensorType]
    ) -> dict[str, Constant]:
        """Initial values of states, unless they are zeros."""
        found: dict[str, Constant] = {}
        for name, state in self._fields(attribute.get("states", {})).items():
            before, _, digest = self._items(state)
            if digest is not None:
                if before not in types:
                    raise self.at.error(f"state {name!r} is no input")
                found[name] = self._resolve(str(digest), types[str(before)])
        return found

    def _host_step(self, attribute: object) -> HostStep:
        function, inputs, outputs, settings = self._items(attribute)
        values = tuple(map(self._setting, self._items(settings)))
        named = dict(zip(map(str, values[::2]), values[1::2], strict=True))
        return HostStep(str(function), self._texts(inputs), self._texts(outputs), named)

    def _setting(self, attribute: object) -> Setting:
        if isinstance(attribute, str | int | float):
            return attribute
        return tuple(map(self._setting, self._items(attribute)))

    def _structure(self, attribute: object) -> Structure:
        if _is_fields(attribute):
            keys = self._items(attribute["keys"])
            known = tuple(key if isinstance(key, int) else str(key) for key in keys)
            return Records(known, str(attribute["tensor"]))
        if attribute is None or isinstance(attribute, str):
            return attribute
        return tuple(map(self._structure, self._items(attribute)))

    def _location(self) -> tuple[str, ...]:
        at = self.at
        at.expect("(")
        if at.accept("fused"):
            at.expect("[")
            names: list[str] = []
            while not at.accept("]"):
                names.append(at.string())
                at.accept(",")
        else:
            names = [at.string()]
        at.expect(")")
        return tuple(names)

    def _attributes(self, regions: Sequence[Graph]) -> dict[str, object]:
        """A dictionary whose ``{`` has been read."""
        found: dict[str, object] = {}
        while not self.at.accept("}"):
            key = self.at.key()
            self.at.expect("=")
            found[key] = self._attribute(regions)
            self.at.accept(",")
        return found

    def _attribute(self, regions: Sequence[Graph]) -> object:
        at = self.at
        if at.accept("["):
            items: list[object] = []
            while not at.accept("]"):
                items.append(self._attribute(regions))
                at.accept(",")
            return tuple(items)
        if at.accept("{"):
            return self._attributes(regions)
        if at.accept("dense<"):
            return self._dense()
        if at.text.startswith('"', at.end):
            return at.string()
        if (kind := at.try_take("opaque")) is not None:
            return self._opaque(kind, regions)
        number = at.try_take("number")
        return self._keyword() if number is None else self._number(number)

    def _opaque(self, kind: str, regions: Sequence[Graph]) -> object:
        if kind == "index":
            value: object = self.at.index()
        elif kind == "region":
            value = regions[int(self.at.take("number"))]
        else:
            raise self.at.error(f"unknown attribute kind #mcc.{kind}")
        self.at.expect(">")
        return value

    def _number(self, text: str) -> int | float:
        typed = self.at.accept(":")
        dtype = self.at.element() if typed else None
        if text.startswith("0x"):
            return struct.unpack("<d", struct.pack("<Q", int(text, 16)))[0]
        if "." in text or (dtype is not None and dtype.is_float):
            return float(text)
        return int(text)

    def _keyword(self) -> object:
        word = self.at.take("element")
        match word:
            case "unit":
                return None
            case "true" | "false":
                return word == "true"
            case _ if word in ELEMENT_TYPES:
                return ELEMENT_TYPES[word]
            case _:
                raise self.at.error(f"unknown attribute {word!r}")

    def _dense(self) -> Constant:
        """``dense<`` has been read."""
        at = self.at
        literals = [] if at.text.startswith(">", at.end) else self._literals()
        at.expect(">")
        at.expect(":")
        type = at.type()
        values = [_element(text, type) for text in literals]
        flat = np.array(values, type.dtype.numpy)
        size = int(np.prod(type.static_shape(), dtype=np.int64))
        if flat.size not in (1, size):
            raise at.error(f"{flat.size} elements are given for {type}")
        data = np.broadcast_to(flat, size) if flat.size != size else flat
        return Constant(np.array(data.reshape(type.static_shape()), order="C"))

    def _literals(self) -> list[str]:
        if not self.at.accept("["):
            return [self.at.take("literal")]
        found: list[str] = []
        while not self.at.accept("]"):
            found += self._literals()
            self.at.accept(",")
        return found


def _is_fields(attribute: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(attribute, dict)


def _element(text: str, type: TensorType) -> Array:
    dtype = type.dtype.numpy
    if text in ("true", "false"):
        return np.asarray(text == "true", dtype)
    if text.startswith("0x"):
        bits = np.asarray(int(text, 16), f"u{dtype.itemsize}")
        return bits.view(dtype)
    if type.dtype.is_float:
        return np.asarray(float(text)).astype(dtype)
    return np.asarray(int(text)).astype(dtype)
