"""Names and other texts of a model: UTF-8, as protobuf wants it, and without NUL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import TensorProto

from modelcc.ir.errors import ModelError


def check_texts(message: Message, where: str) -> None:
    """:class:`ModelError` at the first text in ``message`` that is none.

    The parser hands out texts that are not UTF-8 as bytes.
    """
    for field, value in _fields(message):
        if field.type == FieldDescriptor.TYPE_STRING:
            for text in value if field.is_repeated else (value,):
                if isinstance(text, bytes) or "\0" in text:
                    _refuse(field.name, text, message, where)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for part in value if field.is_repeated else (value,):
                check_texts(part, where)


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
