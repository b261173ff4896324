"""Errors of layers: which layer of the model, and what it was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.nn.branch import Branch, branches, has_tensors
from modelcc.tensor.lazy import Lazy, callers_line
from modelcc.tensor.trees import flatten


class LayerError(ModelError):
    """A fault in a layer: ``layer`` is its path in the outermost module that was called."""

    layer: str
    described: str
    line: tuple[str, ...]
    rest: tuple[str, ...]
    identity: int


def located(error: ModelError, module: Branch, args: Sequence[Any]) -> LayerError:
    """``error`` in ``module``, or in one inside that has been located already."""
    if not isinstance(error, LayerError):
        line = error.where[:1] if error.where else callers_line()
        given = ", ".join(_described(argument) for argument in args)
        described = f"{_signature(module)} of {given}"
        return _made(error, module, "", described, line, error.where[1:])
    name = next((p for p, m in branches(module, deep=False) if id(m) == error.identity), "")
    path = ".".join(part for part in (name, error.layer) if part)
    return _made(error, module, path, error.described, error.line, error.rest)


def _made(
    error: ModelError, module: Branch, path: str, described: str, line: tuple[str, ...],
    rest: tuple[str, ...],
) -> LayerError:  # fmt: skip
    whole = type(module).__name__
    layer = f"{path} of the {whole}: {described}" if path else described
    made = LayerError(error.message, (*line, layer, *rest), error.hint)
    made.layer, made.described, made.line, made.rest = path, described, line, rest
    made.identity = id(module)
    return made


def _signature(module: Branch) -> str:
    text = repr(module)
    return text if "\n" not in text else type(module).__name__


def _described(argument: Any) -> str:
    """The type of a tensor, types of all in a tree, and other values as they are."""
    if isinstance(argument, Lazy):
        return str(argument.type)
    if not has_tensors(argument):
        return f"{type(argument).__name__}" if hasattr(argument, "shape") else repr(argument)
    return f"({', '.join(_described(leaf) for leaf in flatten(argument)[0])})"
