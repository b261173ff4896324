"""Reading StableHLO modules with jaxlib's MLIR bindings: text, portable bytecode, jax's exports."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from jax import export
from jax.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

from modelcc.frontends.stablehlo.attributes import (
    attribute_of,
    dictionary,
    plain_attribute,
    value_type,
)
from modelcc.frontends.stablehlo.module import HloBlock, HloFunction, HloModule, Operation
from modelcc.frontends.stablehlo.quantized_text import without_quantized_types
from modelcc.ir.errors import ModelError

BYTECODE = b"ML\xefR"
"""Magic number of MLIR bytecode."""

WHOLE = frozenset(
    f"chlo.{name}"
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan", "erf", "erfc"),
        *("top_k", "is_inf", "is_neg_inf", "is_pos_inf", "square"),
    )
)
"""CHLO operations that have handlers; others are expanded by StableHLO's own passes."""


def read_text(text: str, name: str = "model") -> HloModule:
    """The module parsed from ``text``; :class:`ModelError` if invalid."""
    context = make_ir_context()
    try:
        with context:
            return read_module(ir.Module.parse(without_quantized_types(text), context), name)
    except ir.MLIRError as error:
        raise _unreadable(name, error) from error
    except ValueError as error:
        raise _unreadable(name, error) from error


def read_bytes(data: bytes, name: str = "model") -> HloModule:
    """The module in portable bytecode, or in the form serialised by ``jax.export``."""
    if not data.startswith(BYTECODE):
        return read_bytes(deserialized(data, name).mlir_module_serialized, name)
    context = make_ir_context()
    try:
        with context:
            return read_module(stablehlo.deserialize_portable_artifact(context, data), name)
    except (ValueError, RuntimeError) as error:
        raise _unreadable(name, error, _version_hint(data)) from error


def deserialized(data: bytes, name: str) -> Any:
    """The ``jax.export.Exported`` in ``data``; :class:`ModelError` if there is none."""
    try:
        return export.deserialize(bytearray(data))
    except Exception as error:  # flatbuffers may raise anything on invalid bytes
        raise _unreadable(name, error) from error


def _version_hint(data: bytes) -> str | None:
    """A hint for a file of a version that the bindings cannot read."""
    written = re.match(rb"ML\xefR.?StableHLO_v([0-9.]+)", data, re.DOTALL)
    if written is None:
        return None
    return (
        f"the file is of StableHLO {written[1].decode()}, the installed jaxlib reads up to "
        f"{stablehlo.get_current_version()}; update jaxlib if that is older"
    )


def _unreadable(name: str, error: Exception, hint: str | None = None) -> ModelError:
    return ModelError(f"this is no StableHLO module that can be read: {error}", (name,), hint)


def read_module(module: Any, name: str = "model") -> HloModule:
    """The functions of a module of the bindings."""
    reader = _ModuleReader()
    found = [reader.function(op.operation) for op in module.body.operations
             if op.operation.name == "func.func"]  # fmt: skip
    functions = {function.name: function for function in found}
    if "main" not in functions:
        raise ModelError("the module has no function @main", (name,))
    return HloModule(name, MappingProxyType(functions))


class _ModuleReader:
    """Numbers values in the order of first occurrence."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def function(self, op: Any) -> HloFunction:
        attributes, body = op.attributes, self._block(op.regions[0].blocks[0])
        arguments = [dictionary(a) for a in _listed(attributes, "arg_attrs", body.arguments)]
        returned = _listed(attributes, "res_attrs", body.results)
        block = op.regions[0].blocks[0]
        labels = [_named(argument) for argument in block.arguments]
        sizes = {n: str(a["jax.global_constant"]) for n, a in enumerate(arguments)
                 if "jax.global_constant" in a}  # fmt: skip
        results = tuple(str(dictionary(a).get("jax.result_info", "")) for a in returned)
        return HloFunction(
            plain_attribute(attributes["sym_name"]), body, tuple(labels), results, sizes
        )

    def _block(self, block: Any) -> HloBlock:
        arguments = tuple(self._number(a) for a in block.arguments)
        types = tuple(value_type(a.type) for a in block.arguments)
        kept = (op.operation for op in block.operations if not _is_of_tuples(op.operation))
        operations = list(map(self._operation, kept))
        last = operations.pop()
        return HloBlock(arguments, types, tuple(operations), last.operands)

    def _operation(self, op: Any) -> Operation:
        if op.name.startswith("chlo.") and not _is_whole(op):
            return self._expanded(op)
        return Operation(
            op.name,
            tuple(map(self._number, op.operands)),
            tuple(map(self._number, op.results)),
            tuple(value_type(o.type) for o in op.operands),
            tuple(value_type(r.type) for r in op.results),
            MappingProxyType({name: attribute_of(op, name) for name in op.attributes}),
            tuple(self._block(region.blocks[0]) for region in op.regions if len(region.blocks)),
            source_line(op.location),
        )

    def _expanded(self, op: Any) -> Operation:
        """The expansion of an operation by StableHLO's own passes, as a region."""
        names = [f"%{n}" for n in range(len(op.operands))]
        types = ", ".join(str(o.type) for o in op.operands)
        results = ", ".join(str(r.type) for r in op.results)
        given = ", ".join(f"{n}: {o.type}" for n, o in zip(names, op.operands, strict=True))
        settings = ", ".join(f"{name} = {op.attributes[name]}" for name in op.attributes)
        text = (
            f"func.func @main({given}) -> ({results}) {{\n"
            f'%r:{len(op.results)} = "{op.name}"({", ".join(names)}) {{{settings}}} : '
            f"({types}) -> ({results})\n"
            f"return {', '.join(f'%r#{n}' for n in range(len(op.results)))} : {results}\n}}"
        )
        stablehlo.register_stablehlo_passes()
        module = ir.Module.parse(text, op.context)
        passes = "builtin.module(func.func(chlo-legalize-to-stablehlo))"
        passmanager.PassManager.parse(passes, op.context).run(module.operation)
        own = _ModuleReader()
        own._numbers = self._numbers
        body = own.function(module.body.operations[0].operation).body
        return Operation(
            op.name,
            tuple(map(self._number, op.operands)),
            tuple(map(self._number, op.results)),
            tuple(value_type(o.type) for o in op.operands),
            tuple(value_type(r.type) for r in op.results),
            {},
            (body,),
            source_line(op.location),
        )

    def _number(self, value: Any) -> int:
        return self._numbers.setdefault(_element(value), len(self._numbers))


def _element(value: Any) -> Any:
    """The value that represents ``value``: for an element extracted from a tuple built here, that
    element."""
    owner = value.owner
    if getattr(owner, "name", "") != _TAKES:
        return value
    made = _element(owner.operands[0]).owner
    if getattr(made, "name", "") != _TUPLE:
        return value
    return _element(made.operands[plain_attribute(owner.attributes["index"])])


def _is_of_tuples(op: Any) -> bool:
    """Whether it builds a tuple from which only elements are extracted, or extracts one."""
    if op.name == _TUPLE:
        return all(use.owner.name in (_TUPLE, _TAKES) for use in op.results[0].uses)
    return op.name == _TAKES and _element(op.results[0]) != op.results[0]


_TUPLE, _TAKES = "stablehlo.tuple", "stablehlo.get_tuple_element"


def _is_whole(op: Any) -> bool:
    """Whether a CHLO operation has a handler; that of erfc is for f32."""
    type = str(op.operands[0].type)
    return op.name in WHOLE and "complex" not in type and (op.name, "f64>" in type) != (
        "chlo.erfc", True)  # fmt: skip


def _listed(attributes: Any, name: str, values: Sequence[int]) -> list[Any]:
    """An attribute for each of ``values``, None where the function has none."""
    found = list(attributes[name]) if name in attributes else []
    return found or [None] * len(values)


def _named(argument: Any) -> str:
    """The program's name of an argument."""
    name = re.fullmatch(r'loc\("([^"]*)"\)', str(argument.location))
    return name[1] if name else ""


def source_line(location: Any) -> str:
    """The innermost ``file:line`` of a location; empty if it has none."""
    lines = re.findall(r'"([^"]+)":(\d+):', str(location))
    return ":".join(lines[0]) if lines else ""
