"""Supported operators of the ONNX standard."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import onnx

from modelcc.frontends.onnx.contrib.operands import DeclaredHandler
from modelcc.frontends.onnx.handlers import HANDLERS


@dataclass(frozen=True)
class Support:
    """One operator: its domain, the operator sets that changed it, how it is imported.

    ``how`` is ``direct``, ``definition`` (by the function that defines it in the standard) or
    empty: not supported.  Operators outside the standard have no versions, and those of onnxruntime
    have ``operands`` in the notation of ``contrib/operands.py``.
    """

    domain: str
    name: str
    versions: tuple[int, ...]
    how: str
    operands: str

    @property
    def qualified(self) -> str:
        """``Conv``, ``ai.onnx.ml.TreeEnsemble``."""
        return f"{self.domain}.{self.name}" if self.domain else self.name


def operators() -> tuple[Support, ...]:
    """All operators of the installed standard and all that are imported, by domain and name."""
    versions: dict[tuple[str, str], list[int]] = {key: [] for key in HANDLERS}
    defined: set[tuple[str, str]] = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        key = (schema.domain, schema.name)
        if schema.deprecated or schema.support_level == onnx.defs.OpSchema.SupportType.EXPERIMENTAL:
            continue
        versions.setdefault(key, []).append(schema.since_version)
        definition = cast(Any, schema)  # its stub lacks functions
        if definition.has_function or definition.has_context_dependent_function:
            defined.add(key)
    return tuple(
        Support(*key, tuple(sorted(found)), _how(key, key in defined), _operands(key))
        for key, found in sorted(versions.items())
    )


def _how(key: tuple[str, str], defined: bool) -> str:
    if key in HANDLERS:
        return "direct"
    return "definition" if defined else ""


def _operands(key: tuple[str, str]) -> str:
    handler = HANDLERS.get(key)
    return handler.text if isinstance(handler, DeclaredHandler) else ""
