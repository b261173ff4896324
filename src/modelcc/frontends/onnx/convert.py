"""The importer: an ONNX model is converted to a graph, node by node, in one pass."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from onnx import FunctionProto, GraphProto, ModelProto, NodeProto

from modelcc.frontends.kit.body import Body, BodyInputs
from modelcc.frontends.kit.divisors import without_empty_divisors
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import Unsupported, UnsupportedForm, UnsupportedModel, unsupported
from modelcc.frontends.kit.groups import MapValue, OptionalValue, SequenceValue, structure_of
from modelcc.frontends.kit.naming import renamed
from modelcc.frontends.onnx.attributes import Attributes
from modelcc.frontends.onnx.call import Call
from modelcc.frontends.onnx.functions import bound, specialised
from modelcc.frontends.onnx.inputs import Dims, InputTypes, fixed_inputs
from modelcc.frontends.onnx.loader import LoadedModel, Model, domain_of, load, opsets
from modelcc.frontends.onnx.operators import Operators
from modelcc.frontends.onnx.ranges import check_ranges
from modelcc.frontends.onnx.schema import Expansion, expansion
from modelcc.frontends.onnx.scope import Scope
from modelcc.frontends.onnx.structure import (
    check_functions,
    check_unique,
    labelled,
    ordered,
    reads,
    subgraphs,
)
from modelcc.frontends.onnx.tensors import sparse_to_array, to_array
from modelcc.frontends.onnx.wire import Items
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import Bounds
from modelcc.ir.structure import Interface, Structure
from modelcc.ir.types import Array, dtype_of
from modelcc.ops.elementwise import Identity


def import_onnx(
    model: Model | LoadedModel, dims: Dims | None = None, values: Mapping[str, Array] | None = None
) -> Graph:
    """The graph of an ONNX model: a path, the bytes of a file, or a ``ModelProto``.

    ``dims`` fixes named dimensions (a number) or bounds them (a ``Range``); a dynamic dimension
    without a name is called ``<input>_d<position>``.  It also fixes the number of elements of a
    sequence, ``<input>_length``, and whether an optional value is there, ``<input>_present``.
    ``values`` turns inputs into constants: a model whose shapes or branches depend on them can then
    be imported.

    Raises :class:`ModelError` if the model is broken and :class:`UnsupportedModel`, listing every
    node, for what modelcc cannot import.
    """
    loaded = model if isinstance(model, LoadedModel) else load(model)
    return _Importer(loaded, dims or {}, values or {}).run()


@dataclass(frozen=True)
class _Node:
    """A node under conversion: its labels outermost first, its scope, and the names of used
    outputs."""

    proto: NodeProto
    source: tuple[str, ...]
    scope: Scope
    used: Collection[str]

    @property
    def key(self) -> tuple[str, str]:
        """Domain and name of its operator."""
        return domain_of(self.proto.domain), self.proto.op_type


class _Importer:
    def __init__(self, model: LoadedModel, dims: Dims, values: Mapping[str, Array]) -> None:
        self._model = model
        self._proto: ModelProto = model.proto
        self._opsets = opsets(model.proto, model.name)
        check_functions(self._proto.functions, model.name)
        self._functions = {(f.domain, f.name): f for f in self._proto.functions}
        graph = self._proto.graph
        stored = {t.name for t in graph.initializer}
        stored |= {t.values.name for t in graph.sparse_initializer}
        check_unique([i.name for i in graph.input], "input", model.name)
        check_unique([o.name for o in graph.output], "output", model.name)
        inputs = [i for i in graph.input if i.name not in stored]
        self._values = fixed_inputs(inputs, values, model.name)
        self._inputs = [i for i in inputs if i.name not in values]
        self._types = InputTypes(self._inputs, dims, model.name)
        name = graph.name or "main"
        self._emitter = Emitter(
            GraphBuilder(name, self._types.bounds), self._types.bounds, self._types.dynamic
        )
        self._operators = Operators()
        self._problems: list[Unsupported] = []

    def run(self) -> Graph:
        scope = Scope(self._opsets, self._emitter)
        for value in self._inputs:
            scope.values[value.name] = self._input(self._types.structures[value.name])
        for name, array in self._values.items():
            scope.values[name] = self._emitter.note(array, dtype_of(array), name)
        outputs = self._graph(self._proto.graph, scope, self._model.raw)
        if self._problems:
            raise UnsupportedModel(self._model.name, self._problems)
        self._types.refuse(self._emitter.dynamic)
        return self._finish(scope, [o for o in outputs if o is not None])

    def _input(self, structure: Structure) -> str:
        """The value of an input; a non-tensor one is composed of its tensors."""
        match structure:
            case str() if structure in self._types.maps:
                return self._emitter.group(MapValue(structure, self._types.maps[structure]))
            case str():
                return self._emitter.builder.input(structure, self._types.types[structure])
            case tuple():
                elements = tuple(map(self._input, structure))
                return self._emitter.group(SequenceValue(elements))
            case _:
                return self._emitter.group(OptionalValue(""))

    def _finish(self, scope: Scope, outputs: Sequence[str]) -> Graph:
        """The graph, its values named as in the model wherever names allow."""
        taken: set[str] = set(self._types.types)
        results: list[str] = []
        wanted: dict[str, str] = {}
        names = [o.name for o in self._proto.graph.output]
        leaves: list[tuple[str, str]] = []
        structures = {
            name: structure_of(value, name, self._emitter.find_group, leaves)
            for name, value in zip(names, outputs, strict=True)
        }
        for value, name in leaves:
            stored = self._emitter.stored(value)
            if stored == name and stored in self._types.types:
                results.append(stored)
                continue
            builder = self._emitter.builder
            owned = builder.is_input(stored) or builder.constant_value(stored) is not None
            if stored in taken or owned:
                stored = self._emitter.builder.emit(Identity(), stored, source=(name,))
            taken.add(stored)
            results.append(stored)
            wanted[stored] = name
        for name, value in scope.values.items():
            if value is not None:
                wanted.setdefault(value, name)
        graph = renamed(self._emitter.builder.build(results), wanted)
        graph = without_empty_divisors(graph, self._types.open)
        interface = Interface(self._types.structures, structures, steps=tuple(self._emitter.steps))
        return graph if interface.is_plain else replace(graph, interface=interface)

    def _graph(
        self, graph: GraphProto, scope: Scope, raw: Mapping[int, memoryview]
    ) -> list[str | None]:
        """Converts ``graph`` into ``scope``; returns its outputs' values.

        ``raw`` is raw data of its initializers that is not in the protobuf, by position.
        """
        self._initializers(graph, scope, raw)
        where = self._model.name
        available = scope.names() | {i.name for i in graph.input}
        nodes = ordered(graph.node, available, where)
        used = {o.name for o in graph.output} | {n for _, node in nodes for n in reads(node)}
        self._nodes(nodes, scope, used)
        return [self._output(o.name, scope) for o in graph.output]

    def _output(self, name: str, scope: Scope) -> str | None:
        try:
            return scope.find(name)
        except KeyError:
            raise ModelError(
                f"output {name!r} is not computed by any node",
                (self._model.name,),
                "the model is incomplete; export it again",
            ) from None

    def _initializers(self, graph: GraphProto, scope: Scope, raw: Mapping[int, memoryview]) -> None:
        names = [t.name for t in graph.initializer]
        names += [t.values.name for t in graph.sparse_initializer]
        check_unique(names, "initializer", self._model.name)
        folder = self._model.folder
        for i, tensor in enumerate(graph.initializer):
            array = to_array(tensor, folder, f"initializer {tensor.name!r}", raw.get(i))
            scope.values[tensor.name] = scope.emitter.note(array, dtype_of(array), tensor.name)
        for sparse in graph.sparse_initializer:
            name = sparse.values.name
            array = sparse_to_array(sparse, folder, f"initializer {name!r}")
            scope.values[name] = scope.emitter.note(array, dtype_of(array), name)

    def _nodes(
        self, nodes: Sequence[tuple[str, NodeProto]], scope: Scope, used: Collection[str]
    ) -> None:
        for name, proto in nodes:
            self._node(_Node(proto, (*scope.prefix, name), scope, used))

    def _node(self, node: _Node) -> None:
        """Converts one node; its results are None (unknown) if that is not possible."""
        proto, scope = node.proto, node.scope
        values = [scope.find(n) if n else "" for n in proto.input]
        captured = [scope.find(n) for n in reads(proto)]
        results: Sequence[str | None] = ()
        if None not in captured:
            results = self._results(node, tuple(v for v in values if v is not None))
        else:
            self._report_unknown(node.source, proto, scope.opsets)
        for i, output in enumerate(proto.output):
            if output:
                scope.values[output] = results[i] if i < len(results) else None

    def _results(self, node: _Node, operands: tuple[str, ...]) -> Sequence[str | None]:
        known, op_type, source = len(self._problems), node.proto.op_type, node.source
        try:
            results = self._dispatch(node, operands)
            if len(self._problems) == known:
                _require_all(node.proto, results, node.used)
            return results
        except UnsupportedForm as form:
            self._problem(source, node.proto, node.scope.opsets, str(form))
            self._report_unknown(source, node.proto, node.scope.opsets)
            return ()
        except ModelError as error:
            raise error.at(*source) from error
        except NotImplementedError as error:
            raise ModelError(f"{op_type} is incomplete in modelcc: {error}", source) from error
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            raise ModelError(
                f"{op_type} cannot be imported: {error}",
                source,
                "check the model with onnx.checker.check_model(model, full_check=True)",
            ) from error

    def _dispatch(self, node: _Node, operands: tuple[str, ...]) -> Sequence[str | None]:
        if node.scope.arguments is not None:
            node = replace(node, proto=bound(node.proto, node.scope.arguments))
        function = self._functions.get(node.key)
        if function is not None:
            return self._function(node, function, operands)
        version = self._operators.version(node.key[0], node.scope.opsets)
        schema = self._operators.schema(*node.key, version)
        if schema is not None:
            schema.check(node.proto, node.source[-1])
            if node.key[0] == "":
                check_ranges(node.proto, node.source[-1])
        handler = self._operators.handler(*node.key, version)
        if handler is None:
            return self._expanded(node, version, operands)
        try:
            results = handler(self._call(node, version, operands))
        except UnsupportedForm as form:
            return self._second_try(form, node, version, operands)
        return (results,) if isinstance(results, str) else results

    def _report_unknown(
        self, source: tuple[str, ...], node: NodeProto, opsets: Mapping[str, int]
    ) -> None:
        """Adds ``node``, and those in it, to the problems if the operator is unknown.

        For nodes that are not converted because their operands could not be.
        """
        domain = domain_of(node.domain)
        function = self._functions.get((domain, node.op_type))
        inside = [graph.node for graph in subgraphs(node)]
        if function is not None:
            inside, opsets = [function.node], {**opsets, **_imports(function)}
        elif "/".join(source) not in {problem.node for problem in self._problems}:
            version = self._operators.version(domain, opsets)
            reason = self._operators.unknown(domain, node.op_type, version)
            if reason is not None:
                self._problem(source, node, opsets, reason)
        for nodes in inside:
            for name, inner in labelled(nodes):
                self._report_unknown((*source, name), inner, opsets)

    def _problem(
        self, source: tuple[str, ...], node: NodeProto, opsets: Mapping[str, int], reason: str
    ) -> None:
        domain = domain_of(node.domain)
        name, version = domain or "ai.onnx", self._operators.version(domain, opsets)
        operator = f"{name}.{node.op_type}"
        self._problems.append(Unsupported("/".join(source), operator, f"opset {version}", reason))

    def _second_try(
        self, form: UnsupportedForm, node: _Node, version: int, operands: tuple[str, ...]
    ) -> Sequence[str | None]:
        """A form without direct support may still be expanded by the standard's definition."""
        before = len(self._problems)
        try:
            results = self._expanded(node, version, operands)
        except UnsupportedForm:
            raise form from None
        if len(self._problems) > before:
            del self._problems[before:]
            raise form
        return results

    def _call(self, node: _Node, version: int, operands: tuple[str, ...]) -> Call:
        proto, source, scope = node.proto, node.source, node.scope

        def converted(
            graph: GraphProto, inner: Scope, inputs: Sequence[str], what: str
        ) -> list[str]:
            inner.values.update(zip((i.name for i in graph.input), inputs, strict=True))
            outputs = self._graph(graph, inner, {})
            if None in outputs:
                raise UnsupportedForm(f"{what} could not be imported")
            return [o for o in outputs if o is not None]

        def inline(graph: GraphProto, *operands: str) -> tuple[str, ...]:
            inner = Scope(scope.opsets, scope.emitter, source, scope, scope.arguments, scope.calls)
            return tuple(converted(graph, inner, operands, "a branch of it"))

        def body(graph: GraphProto, bounds: Bounds, inputs: BodyInputs) -> Body:
            emitter = Emitter(GraphBuilder("body", bounds), bounds, inner=True)
            made = Body(scope.emitter, emitter)
            inner = Scope(
                scope.opsets, emitter, source, scope, scope.arguments, scope.calls,
                capture=made.capture,
            )  # fmt: skip
            return replace(made, outputs=tuple(converted(graph, inner, inputs(made), "its body")))

        return Call(
            operands,
            tuple(proto.input),
            source,
            scope.emitter,
            proto.op_type,
            version,
            Attributes(proto, source[-1], self._model.folder, self._lists(proto, source)),
            tuple(bool(o) and o in node.used for o in proto.output),
            inline,
            scope.find,
            body,
        )

    def _lists(self, node: NodeProto, source: tuple[str, ...]) -> Mapping[str, Items]:
        """Long lists of a node of the model's own graph, by name."""
        if len(source) > 1 or not self._model.lists:
            return {}
        found = {a.name: self._model.lists.get((node.output[0], a.name)) for a in node.attribute}
        return {name: items for name, items in found.items() if items is not None}

    def _expanded(
        self, node: _Node, version: int, operands: tuple[str, ...]
    ) -> Sequence[str | None]:
        """Expanded by the function that defines the operator in the standard, if there is one."""
        schema = self._operators.schema(*node.key, version)
        if schema is None:
            reason = self._operators.unknown(*node.key, version)
            raise UnsupportedForm(reason or "it is supported in other forms only")
        types = [node.scope.emitter.type_of(n) if n else None for n in operands]
        found = expansion(schema, node.proto, specialised(types), version)
        if found is None:
            raise UnsupportedForm("modelcc does not have this operator")
        return self._function(node, found.function, operands, found)

    def _function(
        self,
        node: _Node,
        function: FunctionProto,
        operands: tuple[str, ...],
        standard: Expansion | None = None,
    ) -> Sequence[str | None]:
        """Converts a function's body inline."""
        scope = node.scope
        sets = _imports(function)
        arguments = {a.name: a for a in function.attribute_proto}
        arguments |= standard.defaults if standard is not None else {}
        arguments |= {a.name: a for a in node.proto.attribute}
        if standard is not None:
            sets[function.domain if function.domain != "ai.onnx" else ""] = standard.version
        opsets = {**scope.opsets, **sets}
        key = (function.domain, function.name)
        inner = Scope(opsets, scope.emitter, node.source, None, arguments, (*scope.calls, key))
        if len(operands) > len(function.input):
            takes = f"function {function.name} takes {len(function.input)}"
            raise ModelError(f"it has {len(operands)} operands, but {takes}", node.source)
        for i, name in enumerate(function.input):
            inner.values[name] = operands[i] if i < len(operands) else ""
        nodes = ordered(function.node, inner.names(), f"function {function.name}")
        used = set(function.output) | {n for _, inside in nodes for n in reads(inside)}
        self._nodes(nodes, inner, used)
        named = zip(function.output, node.proto.output, strict=False)
        return [self._output(inside, inner) if outside else None for inside, outside in named]


def _imports(function: FunctionProto) -> dict[str, int]:
    return {domain_of(o.domain): o.version for o in function.opset_import}


def _require_all(node: NodeProto, results: Sequence[str | None], used: Collection[str]) -> None:
    """Not supported unless each used output has a value."""
    for position, output in enumerate(node.output):
        if output in used and not any(results[position : position + 1]):
            unsupported(f"there is no value for its output {position} ({output!r})")
