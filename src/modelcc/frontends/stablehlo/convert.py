"""The importer: a StableHLO module is converted to a graph, operation by operation, calls
inlined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from modelcc.frontends.kit.body import Body, BodyInputs
from modelcc.frontends.kit.complex_values import as_parts, of_parts
from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import Unsupported, UnsupportedForm, UnsupportedModel
from modelcc.frontends.kit.naming import renamed
from modelcc.frontends.stablehlo.call import HloCall, index_scalar
from modelcc.frontends.stablehlo.complex_operations import (
    FORMULAS,
    complex_results,
    is_complex,
)
from modelcc.frontends.stablehlo.handlers import HANDLERS
from modelcc.frontends.stablehlo.inputs import ModuleInputs
from modelcc.frontends.stablehlo.module import HloBlock, HloModule, Operation, ValueType
from modelcc.ir.builder import GraphBuilder
from modelcc.ir.errors import ModelError
from modelcc.ir.graph import Graph
from modelcc.ir.index import Bounds
from modelcc.ir.types import I32
from modelcc.ops.elementwise import Identity

DEEPEST = 200
"""Maximum call depth; functions of StableHLO do not recurse."""


def convert(module: HloModule, inputs: ModuleInputs) -> Graph:
    """The graph of a module's function ``main``."""
    return _ModuleImporter(module, inputs).run()


@dataclass(frozen=True)
class _HloScope:
    """Values of a function or region by number; ``None`` are those that could not be imported.

    ``location`` is that of the call, for operations without a line of their own.
    """

    emitter: Emitter
    parent: _HloScope | None = None
    capture: Callable[[str], str] | None = None
    lifted: bool = False
    depth: int = 0
    location: str = ""
    values: dict[int, str | None] = field(default_factory=dict[int, str | None])

    def find(self, number: int) -> str | None:
        if number in self.values:
            return self.values[number]
        found = None if self.parent is None else self.parent.find(number)
        return self.capture(found) if found is not None and self.capture else found


class _ModuleImporter:
    def __init__(self, module: HloModule, inputs: ModuleInputs) -> None:
        self._module = module
        self._inputs = inputs
        self._emitter = Emitter(GraphBuilder(module.name, inputs.bounds), inputs.bounds)
        self._problems: list[Unsupported] = []
        self._made: dict[int, Operation] = {}

    def run(self) -> Graph:
        main, scope = self._module.main, _HloScope(self._emitter)
        for position, number in enumerate(main.body.arguments):
            scope.values[number] = self._argument(position)
        self._block(main.body, scope)
        if self._problems:
            raise UnsupportedModel(self._module.name, self._problems)
        results = [scope.find(number) for number in main.body.results]
        return self._finish([name for name in results if name is not None])

    def _argument(self, position: int) -> str:
        if position in self._inputs.sizes:
            return index_scalar(self._emitter, self._inputs.sizes[position], I32)
        name = self._inputs.names[position]
        value = self._emitter.builder.input(name, self._inputs.types[position])
        dtype = self._module.main.body.types[position].dtype
        whole = dtype is None or dtype.kind != "complex"
        return value if whole else of_parts(self._emitter, value)

    def _finish(self, results: Sequence[str]) -> Graph:
        """The graph, its outputs named as the program's results."""
        builder, taken = self._emitter.builder, set(self._inputs.names.values())
        wanted: dict[str, str] = {}
        outputs: list[str] = []
        for value, label in zip(results, self._inputs.results, strict=True):
            stored = self._emitter.stored(as_parts(self._emitter, value))
            owned = builder.is_input(stored) or builder.constant_value(stored) is not None
            if stored in taken or owned:
                stored = builder.emit(Identity(), stored)
            taken.add(stored)
            outputs.append(stored)
            wanted[stored] = label
        return renamed(builder.build(outputs), wanted)

    def _block(self, block: HloBlock, scope: _HloScope) -> None:
        for op in block.operations:
            self._made.update(dict.fromkeys(op.results, op))
            results = self._operation(op, scope)
            for n, number in enumerate(op.results):
                scope.values[number] = results[n] if n < len(results) else None

    def _operation(self, op: Operation, scope: _HloScope) -> Sequence[str | None]:
        op = op if op.location else replace(op, location=scope.location)
        operands = [scope.find(number) for number in op.operands]
        if None in operands:
            self._report_unknown(op)
            return ()
        known = len(self._problems)
        source = (op.location or op.name,)
        try:
            results = self._converted(op, tuple(o for o in operands if o is not None), scope)
            if len(self._problems) == known and not scope.lifted:
                _check_types(op, results, scope.emitter)
            return results
        except UnsupportedForm as form:
            if len(self._problems) == known:
                self._problem(op, str(form))
            return ()
        except ModelError as error:
            raise error.at(f"{source[0]} ({op.name})") from error
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise ModelError(f"{op.name} cannot be imported: {error}", source) from error

    def _converted(
        self, op: Operation, operands: tuple[str, ...], scope: _HloScope
    ) -> Sequence[str]:
        call = self._call(op, operands, scope)
        if op.types and all(map(_is_empty, op.types)):
            return [_nothing(call, n) for n in range(len(op.types))]
        if op.name.startswith("chlo.") and op.regions:
            return call.inline(op.regions[0], operands, scope.lifted)
        handler = HANDLERS.get(op.name)
        if is_complex(call):
            results = complex_results(call, handler)
        elif handler is not None:
            results = handler(call)
        else:
            raise UnsupportedForm("modelcc does not have this operation")
        return (results,) if isinstance(results, str) else results

    def _report_unknown(self, op: Operation) -> None:
        """Adds an operation with unavailable operands to the problems if there is no handler."""
        if not (op.name in HANDLERS or op.name in FORMULAS or op.name.startswith("chlo.")):
            self._problem(op, "modelcc does not have this operation")

    def _problem(self, op: Operation, reason: str) -> None:
        name = op.attributes.get("call_target_name")
        operator = f"{op.name} @{name}" if isinstance(name, str) else op.name
        found = Unsupported(op.location or "?", operator, "", reason)
        if found not in self._problems:
            self._problems.append(found)

    def _call(self, op: Operation, operands: tuple[str, ...], scope: _HloScope) -> HloCall:
        def converted(block: HloBlock, inner: _HloScope, inputs: Sequence[str]) -> tuple[str, ...]:
            inner.values.update(zip(block.arguments, inputs, strict=True))
            known = len(self._problems)
            self._block(block, inner)
            results = [inner.find(number) for number in block.results]
            if None in results or len(self._problems) > known:
                raise UnsupportedForm("what it consists of could not be imported")
            return tuple(r for r in results if r is not None)

        def inline(
            block: HloBlock, operands: Sequence[str], lifted: bool = False
        ) -> tuple[str, ...]:
            inner = _HloScope(
                scope.emitter, scope, None, lifted or scope.lifted, scope.depth, op.location
            )
            return converted(block, inner, operands)

        def body(block: HloBlock, bounds: Bounds, inputs: BodyInputs) -> Body:
            emitter = Emitter(GraphBuilder("body", bounds), bounds, inner=True)
            made = Body(scope.emitter, emitter)
            inner = _HloScope(emitter, scope, made.capture, depth=scope.depth, location=op.location)
            return replace(made, outputs=converted(block, inner, inputs(made)))

        def function(name: str, operands: Sequence[str]) -> tuple[str, ...]:
            found = self._module.functions.get(name)
            if found is None or scope.depth > DEEPEST:
                raise ModelError(f"there is no function @{name} to call, or it calls itself")
            inner = _HloScope(scope.emitter, None, None, scope.lifted, scope.depth + 1, op.location)
            return converted(found.body, inner, operands)

        labels = tuple(f"operand {n}" for n in range(len(operands)))
        source = (op.location or op.name,)
        return HloCall(
            operands, labels, source, scope.emitter, op, inline, body, function,
            self._module.functions, self._made.get, scope.find,
        )  # fmt: skip


def _nothing(call: HloCall, number: int) -> str:
    """An empty result."""
    dtype = call.op.types[number].dtype
    assert dtype is not None
    return call.constant(np.zeros(call.static_shape(number), dtype.numpy))


def _is_empty(type: ValueType) -> bool:
    """Whether a result has no elements, so that nothing is computed."""
    real = type.dtype is not None and type.dtype.kind != "complex"
    return real and None not in type.shape and 0 in type.shape


def _check_types(op: Operation, results: Sequence[str], emitter: Emitter) -> None:
    """Checks converted types against the module's: :class:`ModelError` if they differ."""
    if len(results) != len(op.types):
        raise ModelError(f"{op.name} has {len(op.types)} results, not {len(results)}")
    for name, written in zip(results, op.types, strict=True):
        if emitter.find_group(name) is None and not _fits(name, written, emitter):
            raise ModelError(f"{op.name} results in {emitter.type_of(name)}, not in {written}")


def _fits(name: str, written: ValueType, emitter: Emitter) -> bool:
    found = emitter.type_of(name)
    if found.dtype != written.dtype or found.rank != len(written.shape):
        return False
    pairs = zip(found.shape, written.shape, strict=True)
    return all(b is None or not isinstance(a, int) or a == b for a, b in pairs)
