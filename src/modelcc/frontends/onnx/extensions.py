"""Operators of other packages: what their ONNX nodes become.

A package names an :class:`Extension` by an entry point of the group ``modelcc.onnx``::

    [project.entry-points."modelcc.onnx"]
    waves = "waves_onnx:WAVES"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from modelcc.frontends.onnx.call import Handler, simple
from modelcc.ir.op import ModelError, Op

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

    :class:`ModelError` if a package cannot be imported or gives no extension.
    """
    points = sorted(entry_points(group=GROUP), key=lambda point: point.name)
    return {
        (extension.domain, name): handler
        for extension in map(_load, points)
        for name, handler in extension.handlers.items()
    }


def _load(point: EntryPoint) -> Extension:
    hint = "reinstall or uninstall the package that provides it"
    try:
        value: object = point.load()
    except (ImportError, AttributeError) as error:
        message = f"operators {point.name!r} of {point.value} cannot be imported: {error}"
        raise ModelError(message, (), hint) from error
    if not isinstance(value, Extension):
        raise ModelError(f"{point.value} is a {type(value).__name__}, no Extension", (), hint)
    return value
