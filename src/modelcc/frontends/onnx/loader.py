"""Reading an ONNX model from a path, bytes or a ``ModelProto``."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto, TensorProto

from modelcc.frontends.kit.files import open_model
from modelcc.frontends.onnx.wire import Items, split
from modelcc.ir.errors import ModelError

OLDEST_OPSET = 1

Model = str | Path | bytes | ModelProto


@dataclass(frozen=True)
class LoadedModel:
    """A parsed model: its protobuf, its name in error messages, its folder (for external data).

    ``raw`` holds the raw data of large initializers, by position, ``lists`` the items of long lists
    in attributes, by output and name: views of the file.
    """

    proto: ModelProto
    name: str
    folder: Path | None
    raw: Mapping[int, memoryview] = field(default_factory=dict[int, memoryview])
    lists: Mapping[tuple[str, str], Items] = field(default_factory=dict[tuple[str, str], Items])


def load(model: Model) -> LoadedModel:
    """Parses ``model``; :class:`ModelError` if it is not an ONNX model."""
    if isinstance(model, ModelProto):
        return LoadedModel(model, model.graph.name or "model", None)
    if isinstance(model, bytes):
        return _parse(memoryview(model), "model", None)
    path = _path(model)
    return _parse(_mapped(path), path.name, path.parent)


def _path(given: object) -> Path:
    """A path; errors for other packages' objects say how to export them."""
    if isinstance(given, str | Path):
        return Path(given)
    kind = type(given)
    packages = {base.__module__.split(".")[0] for base in kind.__mro__}
    hint = next((text for package, text in _EXPORTS if package in packages), None)
    if hint is None and hasattr(given, "read"):
        hint = "give its bytes: model.read()"
    expected = "a path, the bytes of an .onnx file, an onnx.ModelProto or a modelcc graph"
    name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
    raise ModelError(f"the model must be {expected}, not {name}", (), hint)


_EXPORTS = (
    (
        "torch",
        "export it: torch.onnx.export(model, (example,), 'model.onnx', dynamo=True), "
        "and compile the file",
    ),
    ("onnx", "make it a model: onnx.helper.make_model(graph)"),
    ("keras", "export it: model.export('model.onnx', format='onnx'), and compile the file"),
    ("tensorflow", "convert it: python -m tf2onnx.convert, and compile the file"),
    ("jax", "export it with jax2onnx, and compile the file"),
    ("flax", "export it with jax2onnx, and compile the file"),
    ("sklearn", "convert it: skl2onnx.to_onnx(model, example), and compile what that returns"),
    ("xgboost", "convert it with onnxmltools.convert_xgboost, and compile what that returns"),
    ("lightgbm", "convert it with onnxmltools.convert_lightgbm, and compile what that returns"),
    ("modelcc", "it is compiled already; call it, or compile the .onnx file again"),
)
"""Package → how to export its models to ONNX."""


def _mapped(path: Path) -> memoryview:
    """The file, memory-mapped; closed when no reference to it is left."""
    with open_model(path) as file:
        if path.stat().st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _parse(data: memoryview, name: str, folder: Path | None) -> LoadedModel:
    if not data:
        raise ModelError("the file is empty", (name,), "export or download the model again")
    parts = split(data)
    proto = ModelProto()
    try:
        proto.ParseFromString(parts.message)
    except DecodeError as error:
        raise ModelError(
            "this is not an ONNX file, or it is truncated or corrupted", (name,), _again(data)
        ) from error
    if not proto.HasField("graph"):
        raise ModelError("the file holds no ONNX graph", (name,), _again(data))
    check_texts(proto, name)
    return LoadedModel(proto, name, folder, parts.raw, parts.lists)


_EXPORT = "export the model by torch.export.save (.pt2), or to ONNX"


def _again(data: memoryview) -> str:
    start = bytes(data[:32])
    if start.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer; fetch the file itself with git lfs pull"
    if start[4:8] == b"TFL3":
        return "this is a TensorFlow Lite model; convert it: python -m tf2onnx.convert --tflite"
    if start.startswith(b"\x89HDF"):
        return "this is an HDF5 file (Keras?); export the model to ONNX"
    if start.startswith(b"\x80") and start[1:2] in b"\2\3\4\5":
        return f"this is a Python pickle (a PyTorch checkpoint?); {_EXPORT}"
    if start[8:10] == b'{"':
        return "this is a safetensors file, which has weights only; export the model to ONNX"
    if start.startswith(b"PK\x03\x04") and bytes(data[30:43]) == b"manifest.json":
        return (
            "this is a model that modelcc has compiled (.mcc); compile the model it was made from, "
            "or give it to run, bench or verify --against"
        )
    if start.startswith(b"PK\x03\x04"):
        return f"this is a zip archive (a PyTorch checkpoint, TorchScript?); {_EXPORT}"
    return "export or download the model again"


def opsets(proto: ModelProto, name: str) -> dict[str, int]:
    """Operator set version by domain (``""`` is ai.onnx), checked to be supported ones."""
    found = {domain_of(o.domain): o.version for o in proto.opset_import}
    if not found:
        raise ModelError("the model imports no operator set", (name,), "add opset_import to it")
    newest = onnx.defs.onnx_opset_version()
    version = found.get("")
    if version is None:
        return found
    if version < OLDEST_OPSET:
        raise ModelError(
            f"operator set {version} of ai.onnx is older than {OLDEST_OPSET}",
            (name,),
            "convert it: onnx.version_converter.convert_version(model, 13)",
        )
    if version > newest:
        raise ModelError(
            f"operator set {version} of ai.onnx is newer than {newest}, the newest one known here",
            (name,),
            "upgrade the onnx package, or export the model for an older operator set",
        )
    return found


def domain_of(domain: str) -> str:
    """The canonical name of a domain: the standard one, which has two names, is empty."""
    return "" if domain == "ai.onnx" else domain


def check_texts(message: Message, where: str) -> None:
    """:class:`ModelError` at the first text in ``message`` that is none.

    The parser hands out texts that are not UTF-8 as bytes.
    """
    for part, value in _fields(message):
        values = value if part.is_repeated else (value,)
        if part.type == FieldDescriptor.TYPE_STRING:
            for text in values:
                if isinstance(text, bytes) or "\0" in text:
                    _refuse(part.name, text, message, where)
        elif part.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in values:
                check_texts(inner, where)


def _fields(message: Message) -> Iterable[tuple[FieldDescriptor, Any]]:
    """Fields with their values; of tensors, which may be large, only those with texts."""
    if not isinstance(message, TensorProto):
        return message.ListFields()
    texts = {"name": message.name, "external_data": message.external_data}
    fields: Any = TensorProto.DESCRIPTOR.fields_by_name
    return ((fields[name], value) for name, value in texts.items())


def _refuse(field: str, text: str | bytes, message: Message, where: str) -> None:
    kind = type(message).__name__.removesuffix("Proto")
    fault = "is not UTF-8" if isinstance(text, bytes) else "holds a NUL character"
    raise ModelError(
        f"{field} of {kind}, {text!r}, {fault}",
        (where,),
        "the file is corrupted; export or download the model again",
    )
