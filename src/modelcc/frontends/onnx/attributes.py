"""Typed access to the attributes of an ONNX node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from onnx import AttributeProto, GraphProto, NodeProto

from modelcc.frontends.onnx.number_lists import Codes, coded, floats, integers, narrowed, texts
from modelcc.frontends.onnx.tensors import dtype_from_onnx, sparse_to_array, to_array
from modelcc.frontends.onnx.wire import Items
from modelcc.ir.errors import ModelError
from modelcc.ir.mapped import release_pages
from modelcc.ir.types import Array, DType

Found = TypeVar("Found")
Value = TypeVar("Value")


def type_name(code: int) -> str:
    """ONNX's name of an attribute type (``INTS``)."""
    known: dict[int, str] = {v: k for k, v in AttributeProto.AttributeType.items()}
    return known.get(code, f"type {code}")


class Attributes:
    """Attributes of one node, by name.

    Getters raise :class:`ModelError` for a wrong type, and for an absent attribute without a
    default.  Inside a function, references to its attributes are resolved first.
    """

    def __init__(
        self, node: NodeProto, where: str, folder: Path | None, lists: Mapping[str, Items]
    ) -> None:
        """``lists`` are those whose items are not in ``node``."""
        self._known = {a.name: a for a in node.attribute}
        self._lists = lists
        self._where = where
        self._folder = folder

    def has(self, name: str) -> bool:
        return name in self._known

    def names(self) -> tuple[str, ...]:
        return tuple(self._known)

    def raw(self) -> Mapping[str, AttributeProto]:
        """The attributes unresolved, to pass them into a function body."""
        return {name: self._whole(found) for name, found in self._known.items()}

    def _whole(self, found: AttributeProto) -> AttributeProto:
        """The attribute with its items."""
        items = self._lists.get(found.name)
        if items is None:
            return found
        try:
            return AttributeProto.FromString(bytes(items.attribute))
        except DecodeError as error:
            raise ModelError(
                f"attribute {found.name} is no list of numbers or texts",
                (self._where,),
                "the file is corrupted; export or download the model again",
            ) from error

    def _get(self, name: str, kind: int) -> AttributeProto | None:
        found = self._stub(name, kind)
        return None if found is None else self._whole(found)

    def _stub(self, name: str, kind: int) -> AttributeProto | None:
        """The attribute, perhaps without its items."""
        found = self._known.get(name)
        if found is None or found.type == kind:
            return found
        raise ModelError(
            f"attribute {name} must be of type {type_name(kind)} but is {type_name(found.type)}",
            (self._where,),
            "the exporter wrote an invalid node; correct the attribute",
        )

    def _read(
        self, name: str, kind: int, read: Callable[[AttributeProto], Value], default: Value | None
    ) -> Value:
        found = self._get(name, kind)
        value = default if found is None else read(found)
        if value is None:
            raise self._missing(name)
        return value

    def _missing(self, name: str) -> ModelError:
        return ModelError(
            f"the required attribute {name} is missing",
            (self._where,),
            "the exporter wrote an invalid node; add the attribute",
        )

    def integer(self, name: str, default: int | None = None) -> int:
        return self._read(name, AttributeProto.INT, lambda a: a.i, default)

    def flag(self, name: str, default: bool = False) -> bool:
        return self.integer(name, int(default)) != 0

    def number(self, name: str, default: float | None = None) -> float:
        return self._read(name, AttributeProto.FLOAT, lambda a: shortest(a.f), default)

    def text(self, name: str, default: str | None = None) -> str:
        return self._read(
            name, AttributeProto.STRING, lambda a: a.s.decode("utf-8", "replace"), default
        )

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        return self._read(name, AttributeProto.INTS, lambda a: tuple(a.ints), default)

    def numbers(self, name: str, default: tuple[float, ...] | None = None) -> tuple[float, ...]:
        return self._read(
            name, AttributeProto.FLOATS, lambda a: tuple(map(shortest, a.floats)), default
        )

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        return self._read(
            name, AttributeProto.STRINGS, lambda a: tuple(s.decode() for s in a.strings), default
        )

    def tensor(self, name: str) -> Array:
        where = f"{self._where}, attribute {name}"
        found = self._read(name, AttributeProto.TENSOR, lambda a: a.t, None)
        return to_array(found, self._folder, where)

    def sparse(self, name: str) -> Array:
        where = f"{self._where}, attribute {name}"
        found = self._read(name, AttributeProto.SPARSE_TENSOR, lambda a: a.sparse_tensor, None)
        return sparse_to_array(found, self._folder, where)

    def graph(self, name: str) -> GraphProto:
        return self._read(name, AttributeProto.GRAPH, lambda a: a.g, None)

    def dtype(self, name: str, default: DType) -> DType:
        """An element type by its code; ``default`` if that is 0 or absent."""
        code = self.integer(name, 0)
        return dtype_from_onnx(code, self._where) if code else default

    def integer_array(self, name: str, absent: int | None = None) -> Array:
        """Many integers, in the narrowest dtype that holds them; if there are none, and ``absent``
        is given, as many zeros."""
        listed = self._listed(name, AttributeProto.INTS, integers)
        if listed is not None:
            return listed
        found = self._get(name, AttributeProto.INTS)
        if absent is not None and (found is None or not found.ints):
            return np.zeros(absent, np.int8)
        if found is None:
            raise self._missing(name)
        return narrowed(np.fromiter(found.ints, np.int64, len(found.ints)))

    def float_array(self, name: str) -> Array:
        """Many numbers, none if the attribute is absent."""
        listed = self._listed(name, AttributeProto.FLOATS, floats)
        if listed is not None:
            return listed
        found = self._get(name, AttributeProto.FLOATS)
        values = () if found is None else found.floats
        return np.fromiter(values, np.float32, len(values))

    def codes(self, name: str) -> Codes:
        """Many strings with few distinct values."""
        listed = self._listed(name, AttributeProto.STRINGS, texts)
        return coded(self.texts(name)) if listed is None else listed

    def _listed(
        self, name: str, kind: int, read: Callable[[memoryview, int | None], Found | None]
    ) -> Found | None:
        """``read`` applied to the items of a long list; the mapped memory is then released."""
        items = self._lists.get(name)
        if items is None or self._stub(name, kind) is None:
            return None
        found = read(items.data, items.tag)
        release_pages(np.frombuffer(items.data, np.uint8))
        return found


def shortest(value: float) -> float:
    """The shortest decimal that rounds to the same f32: 0.01 rather than 0.00999999977648."""
    return float(str(np.float32(value)))
