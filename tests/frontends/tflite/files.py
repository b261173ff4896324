"""TFLite files with an operator or a few, written by the schema's own functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import flatbuffers  # pyright: ignore[reportMissingImports]
import numpy as np
import tflite

from modelcc.ir.types import Array

SCHEMA: Any = tflite
TYPES = {
    "float32": "FLOAT32", "float16": "FLOAT16", "int8": "INT8", "uint8": "UINT8", "int16": "INT16",
    "int32": "INT32", "int64": "INT64", "bool": "BOOL", "resource": "RESOURCE",
    "complex64": "COMPLEX64",
}  # fmt: skip


@dataclass(frozen=True)
class T:
    """A tensor: a constant if it has ``data``.  ``scale`` and ``zero`` may go along ``axis``."""

    shape: tuple[int, ...]
    type: str = "int8"
    scale: float | Sequence[float] | None = None
    zero: int | Sequence[int] = 0
    axis: int = 0
    data: Array | None = None
    open: tuple[int, ...] | None = None
    variable: bool = False


def constant(data: Any, type: str = "int32", **more: Any) -> T:
    """A constant tensor."""
    array = np.asarray(data, type)
    return T(array.shape, type, data=array, **more)


@dataclass(frozen=True)
class Op:
    """An operator on tensors by number, with the fields of its options."""

    name: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    kind: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    custom: bytes = b""


@dataclass(frozen=True)
class Subgraph:
    """Tensors, those that are given and returned, and operators."""

    tensors: Sequence[T]
    inputs: Sequence[int]
    outputs: Sequence[int]
    operators: Sequence[Op]


def one(op: str, tensors: Sequence[T], kind: str = "", **options: Any) -> bytes:
    """A model of one operator, whose last tensor is its result; those without data are given."""
    last = len(tensors) - 1
    given = [n for n, t in enumerate(tensors[:-1]) if t.data is None and not t.variable]
    call = Op(op, range(last), [last], kind, options)
    return model([Subgraph(tensors, given, [last], [call])])


def model(
    subgraphs: Sequence[Subgraph],
    version: int = 3,
    signature: tuple[Mapping[str, int], Mapping[str, int]] | None = None,
) -> bytes:
    """The bytes of a file."""
    return _Writer().model(subgraphs, version, signature)


class _Writer:
    def __init__(self) -> None:
        self.to: Any = flatbuffers.Builder(1024)
        self.buffers: list[bytes] = [b""]

    def model(self, subgraphs: Sequence[Subgraph], version: int, signature: Any) -> bytes:
        names = list(dict.fromkeys(op.name for s in subgraphs for op in s.operators))
        parts = [self.subgraph(n, s, names) for n, s in enumerate(subgraphs)]
        codes = [self.code(name) for name in names]
        tables = {
            "OperatorCodes": self.offsets(codes),
            "Subgraphs": self.offsets(parts),
            "Buffers": self.offsets([self.buffer(data) for data in self.buffers]),
        }
        if signature is not None:
            tables["SignatureDefs"] = self.offsets([self.signature(*signature)])
        root = self.table("Model", {"Version": version, **tables})
        self.to.Finish(root, b"TFL3")
        return bytes(self.to.Output())

    def table(self, kind: str, fields: Mapping[str, Any]) -> int:
        module: Any = import_module(f"tflite.{kind}")
        getattr(module, f"{kind}Start")(self.to)
        for name, value in fields.items():
            getattr(module, f"{kind}Add{name}")(self.to, value)
        return int(getattr(module, f"{kind}End")(self.to))

    def offsets(self, tables: Sequence[int]) -> int:
        self.to.StartVector(4, len(tables), 4)
        for table in reversed(tables):
            self.to.PrependUOffsetTRelative(table)
        return int(self.to.EndVector())

    def vector(self, values: Sequence[Any], dtype: str) -> int:
        return int(self.to.CreateNumpyVector(np.asarray(values, dtype)))

    def buffer(self, data: bytes) -> int:
        if not data:
            return self.table("Buffer", {})
        self.to.StartVector(1, len(data), 16)
        words = len(data) // 8
        for byte in reversed(data[8 * words :]):
            self.to.PrependByte(byte)
        for word in reversed(np.frombuffer(data, "<u8", words).tolist()):
            self.to.PrependUint64(word)
        return self.table("Buffer", {"Data": self.to.EndVector()})

    def code(self, name: str) -> int:
        number = getattr(SCHEMA.BuiltinOperator, name, None)
        if number is None:
            text = self.to.CreateString(name)
            return self.table("OperatorCode", {"DeprecatedBuiltinCode": 32, "BuiltinCode": 32,
                                               "CustomCode": text})  # fmt: skip
        fields = {"DeprecatedBuiltinCode": min(number, 127), "BuiltinCode": number}
        return self.table("OperatorCode", {**fields, "Version": VERSIONS.get(name, 1)})

    def subgraph(self, number: int, own: Subgraph, names: Sequence[str]) -> int:
        tensors = self.offsets([self.tensor(n, t) for n, t in enumerate(own.tensors)])
        operators = self.offsets([self.operator(op, names) for op in own.operators])
        ends = [self.vector(list(end), "int32") for end in (own.inputs, own.outputs)]
        name = self.to.CreateString(f"subgraph{number}")
        fields = {"Tensors": tensors, "Inputs": ends[0], "Outputs": ends[1]}
        return self.table("SubGraph", {**fields, "Operators": operators, "Name": name})

    def operator(self, op: Op, names: Sequence[str]) -> int:
        ends = [self.vector(list(end), "int32") for end in (op.inputs, op.outputs)]
        fields: dict[str, Any] = {"OpcodeIndex": names.index(op.name)}
        fields |= {"Inputs": ends[0], "Outputs": ends[1]}
        if op.kind:
            given = {n: self.vector(v, "int32") if isinstance(v, list | tuple) else v
                     for n, v in op.options.items()}  # fmt: skip
            texts = {n: self.to.CreateString(v) for n, v in given.items() if isinstance(v, str)}
            fields["BuiltinOptions"] = self.table(op.kind, {**given, **texts})
            fields["BuiltinOptionsType"] = getattr(SCHEMA.BuiltinOptions, op.kind)
        if op.custom:
            fields["CustomOptions"] = self.vector(list(op.custom), "uint8")
        return self.table("Operator", fields)

    def tensor(self, number: int, own: T) -> int:
        place = 0
        if own.data is not None:
            place = len(self.buffers)
            self.buffers.append(np.ascontiguousarray(own.data).tobytes())
        fields: dict[str, Any] = {
            "Shape": self.vector(own.shape, "int32"),
            "Name": self.to.CreateString(f"t{number}"),
        }
        if own.open is not None:
            fields["ShapeSignature"] = self.vector(own.open, "int32")
        if own.scale is not None:
            scales, zeros = (np.atleast_1d(v).tolist() for v in (own.scale, own.zero))
            parts = {
                "Scale": self.vector(scales, "float32"),
                "ZeroPoint": self.vector(zeros, "int64"),
            }
            parts["QuantizedDimension"] = own.axis
            fields["Quantization"] = self.table("QuantizationParameters", parts)
        kind = getattr(SCHEMA.TensorType, TYPES[own.type])
        extra = {"Type": kind, "Buffer": place, "IsVariable": own.variable}
        return self.table("Tensor", {**fields, **extra})

    def signature(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> int:
        sides = [
            self.offsets([
                self.table("TensorMap", {"Name": self.to.CreateString(n), "TensorIndex": t})
                for n, t in side.items()
            ])
            for side in (inputs, outputs)
        ]  # fmt: skip
        key = self.to.CreateString("serving_default")
        fields = {"Inputs": sides[0], "Outputs": sides[1], "SignatureKey": key}
        return self.table("SignatureDef", fields)


VERSIONS = {"CONV_2D": 3, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 4, "BROADCAST_TO": 2}
"""Of operators whose kernels differ by it."""
