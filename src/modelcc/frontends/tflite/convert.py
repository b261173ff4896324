"""The importer: the main subgraph of a TFLite model is converted to a graph, operator by
operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from modelcc.frontends.kit.body import Body, BodyInputs
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import Unsupported, UnsupportedForm, UnsupportedModel
from modelcc.frontends.kit.naming import renamed
from modelcc.frontends.tflite.call import TfliteCall
from modelcc.frontends.tflite.handlers import HANDLERS
from modelcc.frontends.tflite.inputs import ModelEnds
from modelcc.frontends.tflite.kept import Variables
from modelcc.frontends.tflite.module import TfliteModel, TfliteOperator, TfliteSubgraph
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.graph_states import with_states
from modelcc.ir.index import Bounds
from modelcc.ops.elementwise import Identity

DEEPEST = 32
"""Maximum nesting of subgraphs."""

MOST_SHOWN = 60
"""Characters of a tensor's name shown in messages: converters concatenate those of fused
operators."""


def convert(model: TfliteModel, ends: ModelEnds) -> Graph:
    """The graph of the main subgraph, with names and types of ``ends``."""
    return _TfliteImporter(model, ends).run()


@dataclass(frozen=True)
class _TfliteScope:
    """Values of a subgraph by tensor number; ``None`` are those that could not be imported."""

    subgraph: TfliteSubgraph
    emitter: Emitter
    prefix: tuple[str, ...] = ()
    once: bool = False
    values: dict[int, str | None] = field(default_factory=dict[int, str | None])

    def find(self, number: int) -> str | None:
        """The value of a tensor; constants are noted when first read, and variables are not
        values."""
        if number not in self.values:
            tensor = self.subgraph.tensors[number]
            if tensor.variable:
                return ""
            if tensor.data is None or tensor.dtype is None:
                raise ModelError(
                    f"tensor {tensor.name!r} is read before anything computes it",
                    self.prefix,
                    "the model is incomplete; convert it again",
                )
            self.values[number] = self.emitter.note(tensor.data, tensor.dtype, tensor.name or None)
        return self.values[number]


class _TfliteImporter:
    def __init__(self, model: TfliteModel, ends: ModelEnds) -> None:
        self._model = model
        self._ends = ends
        self._emitter = Emitter(GraphBuilder(model.name, ends.bounds), ends.bounds)
        self._states = Variables(self._emitter)
        self._problems: list[Unsupported] = []

    def run(self) -> Graph:
        main = self._model.subgraphs[0]
        scope = _TfliteScope(main, self._emitter)
        for number, (name, type) in zip(main.inputs, self._ends.inputs.items(), strict=True):
            scope.values[number] = self._emitter.builder.input(name, type)
        self._operators(scope)
        if self._problems:
            raise UnsupportedModel(self._model.name, self._problems)
        return self._finish(scope)

    def _finish(self, scope: _TfliteScope) -> Graph:
        """The graph, its values named as in the model wherever names allow."""
        states, builder = self._states.changed(), self._emitter.builder
        found = [scope.find(number) for number in scope.subgraph.outputs]
        results = [value for value in found if value is not None]
        names = [*self._ends.outputs, *(f"{name}.after" for name in states)]
        taken: set[str] = set()
        wanted: dict[str, str] = {}
        outputs: list[str] = []
        for value, label in zip((*results, *(v for _, v in states.values())), names, strict=True):
            stored = self._emitter.stored(value)
            owned = builder.is_input(stored) or builder.constant_value(stored) is not None
            if stored in taken or owned:
                stored = builder.emit(Identity(), stored)
            taken.add(stored)
            outputs.append(stored)
            wanted[stored] = label
        for number, value in scope.values.items():
            name = scope.subgraph.tensors[number].name
            if value is not None and name:
                wanted.setdefault(value, name)
        graph = renamed(builder.build(outputs), wanted)
        if not states:
            return graph
        after = graph.outputs[len(results) :]
        pairs = zip(states.items(), after, strict=True)
        kept = {name: (before, output) for (name, (before, _)), output in pairs}
        initial = {name: self._states.initial[name] for name in kept
                   if name in self._states.initial}  # fmt: skip
        return with_states(graph, kept, initial)

    def _operators(self, scope: _TfliteScope) -> None:
        for op in scope.subgraph.operators:
            results = self._operator(op, scope)
            for n, number in enumerate(op.outputs):
                scope.values[number] = results[n] if n < len(results) else None

    def _operator(self, op: TfliteOperator, scope: _TfliteScope) -> Sequence[str | None]:
        """Results of an operator; none if it cannot be converted."""
        source = (*scope.prefix, _label(op, scope.subgraph))
        operands = ["" if number == -1 else scope.find(number) for number in op.inputs]
        handler = HANDLERS.get(op.name)
        if handler is None:
            self._problem(op, source, _missing(op))
        if handler is None or None in operands:
            return ()
        known = len(self._problems)
        call = self._call(op, tuple(o for o in operands if o is not None), scope, source)
        try:
            results = handler(call)
            results = (results,) if isinstance(results, str) else tuple(results)
            if len(self._problems) == known:
                _check_types(call, results)
            return results
        except UnsupportedForm as form:
            if len(self._problems) == known:
                self._problem(op, source, str(form))
            return ()
        except ModelError as error:
            raise error.at(*source) from error
        except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
            raise ModelError(f"{op.name} cannot be imported: {error}", source) from error

    def _problem(self, op: TfliteOperator, source: Sequence[str], reason: str) -> None:
        found = Unsupported("/".join(source), op.name, f"version {op.version}", reason)
        if found not in self._problems:
            self._problems.append(found)

    def _call(
        self,
        op: TfliteOperator,
        operands: tuple[str, ...],
        scope: _TfliteScope,
        source: tuple[str, ...],
    ) -> TfliteCall:
        tensors = scope.subgraph.tensors

        def inner(number: int, emitter: Emitter, once: bool) -> _TfliteScope:
            if not 0 <= number < len(self._model.subgraphs):
                raise ModelError(f"there is no subgraph {number} to run")
            if len(source) > DEEPEST:
                raise ModelError("subgraphs run each other")
            return _TfliteScope(self._model.subgraphs[number], emitter, source, once or scope.once)

        def converted(own: _TfliteScope, inputs: Sequence[str]) -> tuple[str, ...]:
            if len(own.subgraph.inputs) != len(inputs):
                count = len(own.subgraph.inputs)
                raise ModelError(f"a subgraph takes {count} operands, not {len(inputs)}")
            own.values.update(zip(own.subgraph.inputs, inputs, strict=True))
            known = len(self._problems)
            self._operators(own)
            found = [own.find(number) for number in own.subgraph.outputs]
            if None in found or len(self._problems) > known:
                raise UnsupportedForm("what it consists of could not be imported")
            return tuple(value for value in found if value is not None)

        def inline(number: int, operands: Sequence[str], once: bool = False) -> tuple[str, ...]:
            return converted(inner(number, scope.emitter, once), operands)

        def body(
            number: int, bounds: Bounds, inputs: BodyInputs, following: int | None = None
        ) -> Body:
            emitter = Emitter(GraphBuilder("body", bounds), bounds, inner=True)
            made = Body(scope.emitter, emitter)
            results = converted(inner(number, emitter, False), inputs(made))
            if following is not None:
                results = (*converted(inner(following, emitter, False), results), *results)
            return replace(made, outputs=results)

        return TfliteCall(
            operands,
            tuple("" if n == -1 else tensors[n].name for n in op.inputs),
            source,
            scope.emitter,
            op,
            tuple(None if n == -1 else tensors[n] for n in op.inputs),
            tuple(tensors[n] for n in op.outputs),
            tuple(None if n == -1 else tensors[n] for n in op.intermediates),
            self._states,
            scope.once,
            inline,
            body,
        )


def _label(op: TfliteOperator, subgraph: TfliteSubgraph) -> str:
    """The operator's location in the user's model: its number, kind, and result."""
    result = subgraph.tensors[op.outputs[0]].name if op.outputs else ""
    if len(result) > MOST_SHOWN:
        result = f"…{result[1 - MOST_SHOWN :]}"
    return f"{op.index} {op.name}" + (f" {result!r}" if result else "")


def _missing(op: TfliteOperator) -> str:
    kind = "custom operator" if op.custom is not None else "operator"
    return f"modelcc does not have this {kind}"


def _check_types(call: TfliteCall, results: Sequence[str]) -> None:
    """Checks converted types against the file's: :class:`ModelError` if they differ."""
    if len(results) != len(call.results):
        call.fail(f"{call.op.name} has {len(results)} results, not {len(call.results)}")
    for name, tensor in zip(results, call.results, strict=True):
        if call.emitter.find_group(name) is not None or tensor.dtype is None:
            continue
        found = call.type_of(name)
        if found.dtype != tensor.dtype:
            call.fail(f"{call.op.name} results in {found}, not in {tensor.dtype}")
