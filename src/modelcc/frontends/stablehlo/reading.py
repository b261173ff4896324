"""StableHLO modules by the MLIR bindings of jaxlib: text, portable bytecode, jax's exports."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from jax import export
from jax.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import stablehlo

from modelcc.frontends.stablehlo.module import (
    Attribute,
    HloBlock,
    HloFunction,
    HloModule,
    Operation,
    ValueType,
)
from modelcc.ir.errors import ModelError
from modelcc.ir.types import DTYPES, DType, NumpyType

BYTECODE = b"ML\xefR"
"""Starts MLIR's bytecode."""

WHOLE = frozenset(
    f"chlo.{name}"
    for name in (
        *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cosh", "sinh", "tan", "erf", "erfc"),
        *("top_k", "is_inf", "is_neg_inf", "is_pos_inf", "square"),
    )
)
"""Operations above StableHLO that have handlers; others are what its own passes make of them."""


def read_text(text: str, name: str = "model") -> HloModule:
    """The module that ``text`` spells; :class:`ModelError` where it spells none."""
    context = make_ir_context()
    try:
        with context:
            return read_module(ir.Module.parse(text, context), name)
    except ir.MLIRError as error:
        raise _unreadable(name, error) from error
    except ValueError as error:
        raise _unreadable(name, error) from error


def read_bytes(data: bytes, name: str = "model") -> HloModule:
    """The module in portable bytecode, or in what ``jax.export`` serialises."""
    if not data.startswith(BYTECODE):
        return read_bytes(deserialized(data, name).mlir_module_serialized, name)
    context = make_ir_context()
    try:
        with context:
            return read_module(stablehlo.deserialize_portable_artifact(context, data), name)
    except (ValueError, RuntimeError) as error:
        raise _unreadable(name, error, _version_hint(data)) from error


def deserialized(data: bytes, name: str) -> Any:
    """The ``jax.export.Exported`` in ``data``; :class:`ModelError` if it holds none."""
    try:
        return export.deserialize(bytearray(data))
    except Exception as error:  # flatbuffers raises what the bytes lead it to
        raise _unreadable(name, error) from error


def _version_hint(data: bytes) -> str | None:
    """What to do about a file of a version that the bindings cannot read."""
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
    """Numbers values in the order in which they are met."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def function(self, op: Any) -> HloFunction:
        attributes, body = op.attributes, self._block(op.regions[0].blocks[0])
        arguments = [_dictionary(a) for a in _listed(attributes, "arg_attrs", body.arguments)]
        returned = _listed(attributes, "res_attrs", body.results)
        block = op.regions[0].blocks[0]
        labels = [_named(argument) for argument in block.arguments]
        sizes = {n: str(a["jax.global_constant"]) for n, a in enumerate(arguments)
                 if "jax.global_constant" in a}  # fmt: skip
        results = tuple(str(_dictionary(a).get("jax.result_info", "")) for a in returned)
        return HloFunction(_attribute(attributes["sym_name"]), body, tuple(labels), results, sizes)

    def _block(self, block: Any) -> HloBlock:
        arguments = tuple(self._number(a) for a in block.arguments)
        types = tuple(value_type(a.type) for a in block.arguments)
        operations = [self._operation(op.operation) for op in block.operations]
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
            MappingProxyType({name: _attribute_of(op, name) for name in op.attributes}),
            tuple(self._block(region.blocks[0]) for region in op.regions if len(region.blocks)),
            source_line(op.location),
        )

    def _expanded(self, op: Any) -> Operation:
        """What StableHLO's own passes make of an operation, as the region of one."""
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
        return self._numbers.setdefault(value, len(self._numbers))


def _is_whole(op: Any) -> bool:
    """Whether an operation above StableHLO has a handler; that of erfc is for f32."""
    type = str(op.operands[0].type)
    return op.name in WHOLE and "complex" not in type and (op.name, "f64>" in type) != (
        "chlo.erfc", True)  # fmt: skip


def _listed(attributes: Any, name: str, values: Sequence[int]) -> list[Any]:
    """An attribute for each of ``values``, None where the function has none."""
    found = list(attributes[name]) if name in attributes else []
    return found or [None] * len(values)


def _dictionary(attribute: Any) -> Mapping[str, Attribute]:
    return {} if attribute is None else {named.name: _attribute(named.attr) for named in attribute}


def _named(argument: Any) -> str:
    """What the program calls an argument."""
    name = re.fullmatch(r'loc\("([^"]*)"\)', str(argument.location))
    return name[1] if name else ""


def source_line(location: Any) -> str:
    """The innermost ``file:line`` of a location; nothing if it has none."""
    lines = re.findall(r'"([^"]+)":(\d+):', str(location))
    return ":".join(lines[0]) if lines else ""


def value_type(type: Any) -> ValueType:
    """The type of a value of the bindings."""
    if not isinstance(type, ir.RankedTensorType):
        return ValueType((), None, str(type))
    extents = [None if type.is_dynamic_dim(n) else type.get_dim_size(n) for n in range(type.rank)]
    dtype = element_type(str(type.element_type))
    return ValueType(tuple(extents), dtype, "" if dtype else str(type))


def element_type(name: str) -> DType | None:
    """The element type that MLIR calls ``name``; None where modelcc has none."""
    return DTYPES.get(_SPELLINGS.get(name, name.lower()))


_SPELLINGS = MappingProxyType(
    {
        "i1": "bool", "index": "i64", "complex<f32>": "c64", "complex<f64>": "c128",
        **{f"ui{bits}": f"u{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    }
)  # fmt: skip


def _attribute_of(op: Any, name: str) -> Attribute:
    try:
        return _attribute(op.attributes[name])
    except TypeError:  # the bindings have no class for arrays of complex numbers
        text = op.get_asm(large_elements_limit=None)
        return _spelled(text[text.index("dense<") :], value_type(op.results[0].type))


def _attribute(attribute: Any) -> Attribute:
    """The contents of an attribute as plain data."""
    for kind, read in _READERS:
        if isinstance(attribute, kind):
            return read(attribute)
    for kind, read in _NUMBERINGS:
        if kind.isinstance(attribute):
            return read(kind(attribute))
    word = re.fullmatch(r"#\w+<\w+ (\w+)>", str(attribute))
    return word[1] if word else str(attribute)


def _fields(*names: str) -> Callable[[Any], Mapping[str, Attribute]]:
    def read(attribute: Any) -> Mapping[str, Attribute]:
        found = {name: getattr(attribute, name) for name in names}
        return {n: v if isinstance(v, int) else tuple(v) for n, v in found.items()}

    return read


def elements(attribute: Any) -> Attribute:
    """A dense array."""
    type = value_type(attribute.type)
    if type.dtype is None:
        return str(attribute)
    try:
        return np.array(attribute).astype(type.dtype.numpy)
    except (TypeError, ValueError):
        return _spelled(str(attribute), type)


_SHOWN = re.compile(r"0x[0-9A-Fa-f]+|[-+]?[0-9][-+.0-9eE]*|true|false")


def _spelled(text: str, type: ValueType) -> Attribute:
    """Elements of a type that the bindings give no buffer of, as the attribute's text has them.

    Bytes are spelled ``dense<"0x…">``; ``0x…`` without quotes is one element's bits.
    """
    assert type.dtype is not None
    dtype, shape = type.dtype.numpy, tuple(e or 0 for e in type.shape)
    real = np.dtype(f"f{dtype.itemsize // 2}") if type.dtype.kind == "complex" else dtype
    body = text[text.index("<") + 1 : text.rindex(">", 0, text.rindex(" : "))]
    if body.startswith('"0x'):
        found = np.frombuffer(bytes.fromhex(body[3:-1]), dtype)
    else:
        found = np.array([_element(word, real) for word in _SHOWN.findall(body)], real).view(dtype)
    return np.broadcast_to(found.reshape(shape if found.size != 1 else ()), shape).copy()


def _element(word: str, dtype: NumpyType) -> Any:
    if word.startswith("0x"):
        return np.frombuffer(int(word, 16).to_bytes(dtype.itemsize, "little"), dtype)[0]
    return dtype.type(float({"true": 1, "false": 0}.get(word, word)))


_READERS: tuple[tuple[Any, Callable[[Any], Attribute]], ...] = (
    (ir.BoolAttr, lambda a: bool(a.value)),
    (ir.IntegerAttr, lambda a: int(a.value)),
    (ir.FloatAttr, lambda a: float(a.value)),
    (ir.StringAttr, lambda a: str(a.value)),
    (ir.FlatSymbolRefAttr, lambda a: str(a.value)),
    (ir.DenseI64ArrayAttr, tuple),
    (ir.DenseI32ArrayAttr, tuple),
    (ir.DenseBoolArrayAttr, tuple),
    (ir.DenseElementsAttr, elements),
    (ir.DictAttr, _dictionary),
    (ir.ArrayAttr, lambda a: tuple(map(_attribute, a))),
)
_NUMBERINGS: tuple[tuple[Any, Callable[[Any], Attribute]], ...] = (
    (
        stablehlo.DotDimensionNumbers,
        _fields(*(f"{side}_{kind}_dimensions" for side in ("lhs", "rhs")
                  for kind in ("batching", "contracting"))),
    ),
    (
        stablehlo.GatherDimensionNumbers,
        _fields("offset_dims", "collapsed_slice_dims", "operand_batching_dims",
                "start_indices_batching_dims", "start_index_map", "index_vector_dim"),
    ),
    (
        stablehlo.ScatterDimensionNumbers,
        _fields("update_window_dims", "inserted_window_dims", "input_batching_dims",
                "scatter_indices_batching_dims", "scattered_dims_to_operand_dims",
                "index_vector_dim"),
    ),
    (
        stablehlo.ConvDimensionNumbers,
        _fields("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions",
                "kernel_input_feature_dimension", "kernel_output_feature_dimension",
                "kernel_spatial_dimensions", "output_batch_dimension",
                "output_feature_dimension", "output_spatial_dimensions"),
    ),
)  # fmt: skip
