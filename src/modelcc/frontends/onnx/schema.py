"""The ONNX standard's rules for a node: known operator, operand counts, attributes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import onnx
from onnx import AttributeProto, FunctionProto, NodeProto

from modelcc.frontends.onnx.attributes import type_name
from modelcc.ir.errors import ModelError


def _invalid(message: str, where: str) -> ModelError:
    hint = "the exporter wrote an invalid node; check it with onnx.checker.check_model"
    return ModelError(message, (where,), hint)


@dataclass(frozen=True)
class Schema:
    """The rules for one operator in one operator set version."""

    attributes: Mapping[str, tuple[int, bool]]
    definition: onnx.defs.OpSchema

    @property
    def has_definition(self) -> bool:
        """Whether the standard defines the operator by a function."""
        found = cast(Any, self.definition)  # its stub lacks functions
        return bool(found.has_function or found.has_context_dependent_function)

    def check(self, node: NodeProto, where: str) -> None:
        """:class:`ModelError` if ``node`` breaks the rules."""
        rules = self.definition
        present = [i for i, name in enumerate(node.input) if name]
        count = max(present, default=-1) + 1
        if not rules.min_input <= count <= rules.max_input or len(node.input) > rules.max_input:
            expected = _counted(rules.min_input, rules.max_input)
            raise _invalid(f"it has {count} inputs, expected {expected}", where)
        for name, formal in zip(node.input[:count], self.operands(count), strict=True):
            if not name and formal.option != onnx.defs.OpSchema.FormalParameterOption.Optional:
                raise _invalid(f"its operand {formal.name} is left out", where)
        if not rules.min_output <= len(node.output) <= rules.max_output:
            expected = _counted(rules.min_output, rules.max_output)
            raise _invalid(f"it has {len(node.output)} outputs, expected {expected}", where)
        self._check_attributes(node, where)

    def operands(self, count: int) -> list[onnx.defs.OpSchema.FormalParameter]:
        """The standard's declarations of the first ``count`` operands; the last one may be
        variadic."""
        formal = list(self.definition.inputs)
        return (formal + formal[-1:] * max(0, count - len(formal)))[:count]

    def _check_attributes(self, node: NodeProto, where: str) -> None:
        seen: set[str] = set()
        for attribute in node.attribute:
            name = attribute.name
            if name in seen:
                raise _invalid(f"attribute {name} is given twice", where)
            seen.add(name)
            if name not in self.attributes:
                known = ", ".join(self.attributes) or "none"
                raise _invalid(
                    f"{node.op_type} has no attribute {name!r} in this operator set "
                    f"(it has: {known})",
                    where,
                )
            expected = self.attributes[name][0]
            if attribute.type not in (expected, AttributeProto.UNDEFINED):
                raise _invalid(
                    f"attribute {name} must be of type {type_name(expected)} "
                    f"but is {type_name(attribute.type)}",
                    where,
                )
        for name, (_, required) in self.attributes.items():
            if required and name not in seen:
                raise _invalid(f"the required attribute {name} is missing", where)


def _counted(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"at least {least}" if most > 1 << 20 else f"{least} to {most}"


class Schemas:
    """Schemas by operator, cached."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], Schema | None] = {}

    def find(self, domain: str, op_type: str, version: int) -> Schema | None:
        """The schema that operator set ``version`` of ``domain`` uses; None: no such operator."""
        key = (domain, op_type, version)
        if key not in self._known:
            self._known[key] = _lookup(domain, op_type, version)
        return self._known[key]


def newest(domain: str) -> int:
    """The operator set version assumed if a model does not import ``domain``."""
    if domain == "":
        return onnx.defs.onnx_opset_version()
    every = (s for s in onnx.defs.get_all_schemas() if s.domain == domain)
    return max((s.since_version for s in every), default=1)


def _code(kind: object) -> int:
    """An ``AttrType``, an enumeration whose stub lacks values, as ONNX's code."""
    return int(cast(Any, kind).value)


def _lookup(domain: str, op_type: str, version: int) -> Schema | None:
    try:
        found = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None
    attributes = {name: (_code(a.type), bool(a.required)) for name, a in found.attributes.items()}
    schema = Schema(attributes, found)
    # One that is defined by a function keeps its meaning, and onnxruntime runs it.
    return None if found.deprecated and not schema.has_definition else schema


@dataclass(frozen=True)
class Expansion:
    """A function that defines an operator, written for operator set ``version``.

    ``defaults`` are those of the operator's attributes.
    """

    function: FunctionProto
    version: int
    defaults: Mapping[str, AttributeProto]


def expansion(
    schema: Schema, node: NodeProto, types: list[onnx.TypeProto], version: int
) -> Expansion | None:
    """The function that defines an operator on operands of these ``types``."""
    definition = cast(Any, schema.definition)  # its stub lacks functions
    plain: list[int] = [v for v in definition.function_opset_versions if v <= version]
    if plain:
        data = definition.get_function_with_opset_version(max(plain))
        return Expansion(_parsed(data), max(plain), _defaults(schema))
    versions: list[int] = definition.context_dependent_function_opset_versions
    dependent = [v for v in versions if v <= version]
    if not dependent:
        return None
    data = definition.get_context_dependent_function_with_opset_version(
        max(dependent), node.SerializeToString(), [t.SerializeToString() for t in types]
    )
    return Expansion(_parsed(data), max(dependent), _defaults(schema)) if data else None


def _defaults(schema: Schema) -> dict[str, AttributeProto]:
    given = {name: a.default_value for name, a in schema.definition.attributes.items()}
    return {name: value for name, value in given.items() if value.name}


def _parsed(data: bytes | FunctionProto) -> FunctionProto:
    if isinstance(data, FunctionProto):
        return data
    function = FunctionProto()
    function.ParseFromString(data)
    return function
