"""TFLite files as trees of tables, complete, and back to bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, cast

import flatbuffers  # pyright: ignore[reportMissingImports]
import numpy as np
import tflite

from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array

SCHEMA: Any = tflite
FLATBUFFERS: Any = flatbuffers
UNIONS: Mapping[str, str] = {
    "BuiltinOptions": "BuiltinOptions",
    "BuiltinOptions2": "BuiltinOptions2",
    "Details": "QuantizationDetails",
    "ArraySegments": "SparseIndexVector",
    "ArrayIndices": "SparseIndexVector",
}
"""Union fields, and the enumeration of their types."""

_ALIGNMENT = 16
"""Alignment of buffers' bytes, as the schema requires."""


@dataclass(frozen=True)
class Table:
    """A table of the schema: its fields by their schema names."""

    kind: str
    fields: Mapping[str, Any]

    def with_fields(self, **fields: Any) -> Table:
        """With these fields replaced; None removes one."""
        merged = {**self.fields, **fields}
        return Table(self.kind, {n: value for n, value in merged.items() if value is not None})


def read_tables(data: bytes) -> Table:
    """The tree of a file whose structure :func:`read_model` has validated."""
    model = SCHEMA.Model.GetRootAs(data, 0)
    tree = _table(model)
    buffers = [_inside(buffer, data) for buffer in tree.fields.get("Buffers", ())]
    return tree.with_fields(Buffers=buffers)


def _inside(buffer: Table, data: bytes) -> Table:
    """A buffer with its bytes inlined, which may be stored after the flatbuffer."""
    start, size = buffer.fields.get("Offset", 0), buffer.fields.get("Size", 0)
    if start <= 1:
        return buffer
    contents = np.frombuffer(data, np.uint8, size, start)
    return buffer.with_fields(Data=contents, Offset=None, Size=None)


def _table(source: Any) -> Table:
    kind = type(source).__name__
    found = {name: _field(source, name) for name in field_names(kind)}
    if found.get("LargeCustomOptionsOffset"):
        raise ModelError("custom options behind the flatbuffer cannot be written again")
    return Table(kind, {name: value for name, value in found.items() if value is not None})


@cache
def field_names(kind: str) -> tuple[str, ...]:
    """The fields of a type of table."""
    start = f"{kind}Add"
    module = vars(import_module(f"tflite.{kind}"))
    return tuple(name.removeprefix(start) for name in module if name.startswith(start))


def _field(source: Any, name: str) -> Any:
    if hasattr(source, f"{name}AsNumpy"):
        found: Any = getattr(source, f"{name}AsNumpy")()
        if isinstance(found, np.ndarray):
            return cast("Array", found)
        return None if getattr(source, f"{name}IsNone")() else np.zeros(0, np.int32)
    if hasattr(source, f"{name}Length"):
        get = getattr(source, name)
        items = [_value(get(n)) for n in range(getattr(source, f"{name}Length")())]
        return items or None
    value = getattr(source, name)()
    if isinstance(value, FLATBUFFERS.table.Table):
        return _union(source, name, value)
    return _value(value)


def _value(value: Any) -> Any:
    if value is None or isinstance(value, bytes | bool | int | float):
        return value
    return _table(value)


def _union(source: Any, name: str, raw: Any) -> Table | None:
    """The table of a union field, whose type is in another field."""
    names: dict[str, Any] = {**vars(getattr(SCHEMA, UNIONS[name]))}
    number = getattr(source, f"{name}Type")()
    kind = next((n for n, value in names.items() if value == number and n[0] != "_"), "NONE")
    if kind == "NONE":
        return None
    table = getattr(SCHEMA, kind)()
    table.Init(raw.Bytes, raw.Pos)
    return _table(table)


# --- writing


def write_tables(tree: Table) -> bytes:
    """The bytes of a file."""
    builder = FLATBUFFERS.Builder(1 << 16)
    builder.Finish(_written(builder, tree), b"TFL3")
    return bytes(builder.Output())


def _written(to: Any, table: Table) -> int:
    values = {name: _offset(to, name, value) for name, value in table.fields.items()}
    module = vars(import_module(f"tflite.{table.kind}"))
    module[f"{table.kind}Start"](to)
    for name, value in values.items():
        module[f"{table.kind}Add{name}"](to, value)
    return int(module[f"{table.kind}End"](to))


def _offset(to: Any, name: str, value: Any) -> Any:
    """The offset of ``value`` after writing it, or itself if it is a number."""
    match value:
        case Table():
            return _written(to, value)
        case bytes():
            return to.CreateString(value)
        case np.ndarray() if name == "Data":
            return _bytes(to, value.tobytes())
        case np.ndarray():
            return to.CreateNumpyVector(value)
        case list():
            return _vector(to, name, cast("list[Any]", value))
        case _:
            return value


def _vector(to: Any, name: str, items: Sequence[Any]) -> int:
    offsets = [_offset(to, name, item) for item in items]
    to.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        to.PrependUOffsetTRelative(offset)
    return int(to.EndVector())


def _bytes(to: Any, contents: bytes) -> int:
    to.StartVector(1, len(contents), _ALIGNMENT)
    to.head = to.head - len(contents)
    to.Bytes[to.head : to.head + len(contents)] = contents
    return int(to.EndVector())
