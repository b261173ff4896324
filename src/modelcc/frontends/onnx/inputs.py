"""Types of a model's inputs: named, unnamed and given dimensions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from onnx import TensorProto, TensorShapeProto, TypeProto, ValueInfoProto

from modelcc.frontends.onnx.tensors import dtype_from_onnx
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, Range, Sym
from modelcc.ir.structure import Structure
from modelcc.ir.types import Array, DType, TensorType

Dims = Mapping[str, int | Range]

ANY_SIZE = Range(0, None)
"""Bounds of a dimension that is not fixed; empty tensors are allowed."""


class InputTypes:
    """Types of the inputs, and the bounds of the dimensions that stay symbolic.

    ``open`` are the unbounded ones.

    ``given`` fixes (a number) or bounds (a range) dimensions by name.  A dimension without a name
    is called ``<input>_d<position>``; so is a ``?``, which exporters write for "unknown".
    """

    def __init__(self, inputs: Sequence[ValueInfoProto], given: Dims, where: str) -> None:
        self.types: dict[str, TensorType] = {}
        self.maps: dict[str, DType] = {}
        self.structures: dict[str, Structure] = {}
        self.bounds: dict[str, Range] = {}
        self.open: list[str] = []
        self._given = given
        self._where = where
        self._names: list[str] = []
        self._outputs_unnamed = _unnamed(inputs)
        for value in inputs:
            self.structures[value.name] = self._structure(value.name, value.type)
        self.dynamic = {name: given[name] for name in given if name not in self._names}

    def _structure(self, name: str, type: TypeProto) -> Structure:
        """A sequence is its elements, whose number ``dims`` fixes; likewise for optionals."""
        match type.WhichOneof("value"):
            case "sequence_type":
                count = self._count(
                    f"{name}_length", f"input {name!r} is a sequence", "how many elements it has"
                )
                element = without_names(type.sequence_type.elem_type)
                return tuple(self._structure(f"{name}[{i}]", element) for i in range(count))
            case "optional_type":
                there = self._count(
                    f"{name}_present",
                    f"input {name!r} is optional",
                    "whether it is there (1) or not (0)",
                )
                return self._structure(name, type.optional_type.elem_type) if there else None
            case "map_type":
                self.maps[name] = input_dtype(name, type.map_type.value_type, self._where)
                return name
            case _:
                self.types[name] = self._type(name, type)
                return name

    def _count(self, symbol: str, fault: str, meaning: str) -> int:
        self._names.append(symbol)
        given = self._given.get(symbol)
        if isinstance(given, int) and given >= 0:
            return given
        raise ModelError(
            f"{fault}, and dimension {symbol!r} is not fixed",
            (self._where,),
            f"tell {meaning} when compiling, for example with dims={{{symbol!r}: 1}}",
        )

    def _type(self, name: str, type: TypeProto) -> TensorType:
        dtype = input_dtype(name, type, self._where)
        dims = list(type.tensor_type.shape.dim)
        if not type.tensor_type.HasField("shape"):
            fault = f"input {name!r} has no shape, not even a rank"
            rank = self._count(f"{name}_rank", fault, "how many dimensions it has")
            dims = [TensorShapeProto.Dimension()] * rank
        return TensorType(tuple(self._dim(name, i, d) for i, d in enumerate(dims)), dtype)

    def _dim(self, name: str, position: int, dim: TensorShapeProto.Dimension) -> Index:
        fixed = f"{name}_d{position}"
        if dim.HasField("dim_value") and dim.dim_value > 0:
            return int(dim.dim_value)
        if dim.HasField("dim_value") and dim.dim_value == 0 and fixed not in self._given:
            return 0
        plain = dim.dim_param and dim.dim_param not in self._outputs_unnamed
        symbol = dim.dim_param if plain else fixed
        if symbol not in self._names:
            self._names.append(symbol)
        if symbol not in self._given and symbol not in self.open:
            self.open.append(symbol)
        given = self._given.get(symbol, ANY_SIZE)
        if isinstance(given, int):
            return self._checked(symbol, given)
        self.bounds[symbol] = given
        return Sym(symbol)

    def _checked(self, symbol: str, value: int) -> int:
        if value < 0:
            raise ModelError(f"dimension {symbol!r} cannot be {value}", (self._where,))
        return value

    def refuse(self, unknown: Collection[str]) -> None:
        """:class:`ModelError` if there is a dimension that the model does not have."""
        for name in unknown:
            known = ", ".join(map(repr, self._names)) or "none"
            raise ModelError(
                f"the model has no dimension {name!r}",
                (self._where,),
                f"its dimensions are: {known}",
            )


def without_names(type: TypeProto) -> TypeProto:
    """``type`` with its named dimensions unknown: elements of a sequence may differ there."""
    copy = TypeProto()
    copy.CopyFrom(type)
    for dim in copy.tensor_type.shape.dim:
        if dim.HasField("dim_param"):
            dim.Clear()
    return copy


def _unnamed(inputs: Sequence[ValueInfoProto]) -> frozenset[str]:
    """Dimension names without meaning: ``?`` and its equivalents."""
    counts = Counter(d.dim_param for v in inputs for d in v.type.tensor_type.shape.dim)
    return frozenset(name for name in counts if name.strip() in ("?", "-1", "None", "unk"))


def fixed_inputs(
    inputs: Sequence[ValueInfoProto], values: Mapping[str, Array], where: str
) -> dict[str, Array]:
    """``values`` as arrays of their inputs' dtypes; :class:`ModelError` if they do not fit."""
    known = {i.name: i for i in inputs}
    result: dict[str, Array] = {}
    for name, value in values.items():
        if name not in known:
            names = ", ".join(map(repr, known)) or "none"
            raise ModelError(f"the model has no input {name!r}", (where,), f"inputs: {names}")
        array, proto = np.asarray(value), known[name]
        dtype = input_dtype(name, proto.type, where)
        shape = proto.type.tensor_type.shape.dim
        extents = [d.dim_value for d in shape]
        fits = len(extents) == array.ndim and all(
            e in (0, n) for e, n in zip(extents, array.shape, strict=True)
        )
        if array.dtype != dtype.numpy or not fits:
            raise ModelError(
                f"the value given for {name!r} is {array.dtype}{list(array.shape)}, "
                f"but the input is {dtype}{[e or '?' for e in extents]}",
                (where,),
            )
        result[name] = array
    return result


def input_dtype(name: str, type: TypeProto, where: str) -> DType:
    """Element type of a tensor input; :class:`ModelError` for sequences and maps."""
    kind = type.WhichOneof("value")
    if kind != "tensor_type":
        raise ModelError(
            f"input {name!r} is no tensor but a {kind or 'value without a type'}",
            (where,),
            "inputs are tensors, sequences, maps or optional values",
        )
    code = type.tensor_type.elem_type
    if code == TensorProto.UNDEFINED:
        raise ModelError(f"input {name!r} has no element type", (where,))
    return dtype_from_onnx(code, f"{where}, input {name!r}")
