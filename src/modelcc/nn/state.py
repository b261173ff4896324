"""Tensors by name: checks before they replace those of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from typing import Any

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

SHOWN = 8
"""Maximum names listed by an error."""


def suiting(
    module: str, own: Mapping[str, Tensor], given: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """``given``; :class:`ModelError` for names that ``module`` lacks, and for other types."""
    unknown = [name for name in given if name not in own]
    differ = [
        f"{name}: {given[name].type} for {own[name].type}"
        for name in given
        if name in own and given[name].type != own[name].type
    ]
    if unknown or differ:
        raise _refused(module, own, [], unknown, differ)
    return given


def changed(
    own: Mapping[str, Tensor], given: Mapping[str, Tensor]
) -> Callable[[str, str, Tensor], Tensor]:
    """The change of :func:`~modelcc.nn.branch.rebuilt` that puts ``given`` in place of ``own``.

    A shared tensor is replaced at all of its paths.
    """
    by_tensor = {id(own[path]): tensor for path, tensor in given.items()}

    def change(path: str, role: str, tensor: Tensor) -> Tensor:
        if path in given:
            return given[path]
        return by_tensor.get(id(tensor), tensor) if path in own else tensor

    return change


def loaded(
    module: str, own: Mapping[str, Tensor], given: Mapping[str, Any], strict: bool
) -> dict[str, Tensor]:
    """``given`` converted to the types of ``own``; :class:`ModelError` lists mismatches."""
    missing = [name for name in own if name not in given] if strict else []
    unknown = [name for name in given if name not in own] if strict else []
    arrays = {name: array_of(value) for name, value in given.items() if name in own}
    differ = [
        f"{name}: {list(array.shape)} for {own[name].type}"
        for name, array in arrays.items()
        if array.shape != tuple(own[name].shape) or not _converts(array, own[name])
    ]
    if missing or unknown or differ:
        raise _refused(module, own, missing, unknown, differ)
    return {name: Tensor(array, own[name].dtype) for name, array in arrays.items()}


def array_of(value: Any) -> Array:
    """A tensor, an array or a PyTorch tensor as an array."""
    if isinstance(value, Tensor):
        return value.numpy()
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # NumPy lacks it; f32 holds it
            value = value.float()
        return value.numpy()
    return np.asarray(value)


def _converts(array: Array, own: Tensor) -> bool:
    """Whether elements may be converted: they are of the same kind."""
    return Tensor.of_array(array).dtype.is_float == own.dtype.is_float


def _refused(
    module: str, own: Iterable[str], missing: list[str], unknown: list[str], differ: list[str]
) -> ModelError:
    names = list(own)
    parts = [
        f"{title}: {_listed(found)}"
        for title, found in (("missing", missing), ("unknown", unknown), ("other types", differ))
        if found
    ]
    close = get_close_matches(unknown[0], names, 1) if unknown else []
    hint = f"is {unknown[0]!r} meant to be {close[0]!r}?" if close else None
    message = f"the tensors are not those of {module}; {'; '.join(parts)}"
    return ModelError(message, callers_line(), hint)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
