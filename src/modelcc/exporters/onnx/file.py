"""Models as files: constants are inside, or in external data if they exceed the limit of a file."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from typing import BinaryIO

import numpy as np
from onnx import TensorProto

from modelcc.exporters.onnx.graph import onnx_program
from modelcc.exporters.onnx.types import element_type, tensor_proto
from modelcc.ir.graph import Graph
from modelcc.ir.types import Array, dtype_of

MOST = (1 << 31) - (1 << 24)
"""Bytes of constants that a file may contain: protobuf's limit is 2 GB."""

LEAST = 1024
"""Minimum bytes of a constant in external data."""

PAGE = 4096
"""Alignment of constants in external data, so that files may be memory-mapped."""


def write_onnx(graph: Graph, path: str | PathLike[str], most: int = MOST) -> tuple[Path, ...]:
    """Writes :func:`~modelcc.exporters.onnx.export_onnx` of the graph; returns the files written.

    If constants have more than ``most`` bytes in all, they go into ``path`` with ``.data``
    appended, which must stay next to the model.
    """
    target, program = Path(fspath(path)), onnx_program(graph)
    whole = sum(data.nbytes for data in program.constants.values())
    files = [target]
    if whole > most:
        files.append(target.with_name(f"{target.name}.data"))
        with files[1].open("wb") as file:
            tensors = _beside(program.constants, file, files[1].name)
    else:
        tensors = [tensor_proto(name, data) for name, data in program.constants.items()]
    program.proto.graph.initializer.extend(tensors)
    target.write_bytes(program.proto.SerializeToString())
    return tuple(files)


def _beside(constants: Mapping[str, Array], file: BinaryIO, name: str) -> list[TensorProto]:
    return [
        tensor_proto(key, data) if data.nbytes < LEAST else _reference(key, data, file, name)
        for key, data in constants.items()
    ]


def _reference(key: str, data: Array, file: BinaryIO, name: str) -> TensorProto:
    """A constant whose bytes are moved to ``file``."""
    file.write(bytes(-file.tell() % PAGE))
    start = file.tell()
    file.write(_raw(key, data))
    proto = TensorProto(name=key, dims=data.shape, data_type=element_type(dtype_of(data)))
    proto.data_location = TensorProto.EXTERNAL
    places = {"location": name, "offset": str(start), "length": str(file.tell() - start)}
    for entry, value in places.items():
        proto.external_data.add(key=entry, value=value)
    return proto


def _raw(key: str, data: Array) -> memoryview | bytes:
    """The elements in the file format: packed if narrower than a byte."""
    if dtype_of(data).bits < 8:
        return tensor_proto(key, data).raw_data
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
