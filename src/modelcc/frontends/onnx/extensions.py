"""Operators of other packages: conversion of their ONNX nodes.

A package registers an :class:`Extension` as an entry point of the group ``modelcc.onnx``::

    [project.entry-points."modelcc.onnx"]
    waves = "waves_onnx:WAVES"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, cast

from modelcc.frontends.onnx.call import Handler, simple
from modelcc.ir.op import Op
from modelcc.ir.plugin import plugins

GROUP = "modelcc.onnx"


@dataclass(frozen=True)
class Extension:
    """Handlers of the operators of one ONNX ``domain``, by the operators' names."""

    domain: str
    handlers: Mapping[str, Handler]


def direct(op: type[Op]) -> Handler:
    """A handler of an operator with the operands, results and attributes of ``op``.

    An attribute that a node lacks has the default of the op's field.
    """
    return simple(op, **{f.name: _default(op, f.default) for f in fields(op)})  # type: ignore[arg-type]


def _default(op: type[Op], value: Any) -> Any:
    if isinstance(value, bool | int | float | str | tuple):
        return cast(Any, value)
    raise TypeError(f"every field of {op.__name__} needs a default that ONNX has a type for")


def extensions() -> Mapping[tuple[str, str], Handler]:
    """The handlers of installed packages, by domain and name.

    :class:`ModelError` if a package cannot be imported or provides no extension.
    """
    return {
        (extension.domain, name): handler
        for _, extension in plugins(GROUP, Extension)
        for name, handler in extension.handlers.items()
    }
