"""Roles of tensors in modules: trained, frozen, or a buffer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, cast

from modelcc.ir.errors import ModelError
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

Role = Literal["parameter", "frozen", "buffer", "transient"]
"""Trained; a parameter that is not; part of the state; a buffer excluded from state dicts."""


class Marked:
    """A tensor with its role, before assignment to an attribute of a module."""

    tensor: Tensor
    role: Role


class Parameter(Marked):
    """Marks a trainable tensor: ``self.weight = Parameter(tensor)``.

    The module stores the tensor itself and records the name.  :class:`ModelError` for non-float
    tensors, unless not ``trainable``.
    """

    def __new__(cls, value: Any, trainable: bool = True) -> Any:
        """``value`` is a tensor, or converted to one."""
        marked = super().__new__(cls)
        marked.tensor = Tensor(value)
        if trainable and not marked.tensor.dtype.is_float:
            raise ModelError(f"a parameter of {marked.tensor.dtype} cannot be trained",
                             callers_line(), "make it a Buffer")  # fmt: skip
        marked.role = "parameter" if trainable else "frozen"
        return marked


class Buffer(Marked):
    """Marks a tensor that is not trained; a ``persistent`` one is in the state dict.

    Tensors without a mark are persistent buffers.
    """

    def __new__(cls, value: Any, persistent: bool = True) -> Any:
        """``value`` is a tensor, or converted to one."""
        marked = super().__new__(cls)
        marked.tensor = Tensor(value)
        marked.role = "buffer" if persistent else "transient"
        return marked


def unmarked(value: Any) -> tuple[Any, Role | None]:
    """``value`` without marks, in lists and dicts too, and the role that they specify."""
    if isinstance(value, Marked):
        return value.tensor, value.role
    roles = _roles_in(value)
    if not roles:
        return value, None
    if len(roles) > 1:
        raise ModelError("one attribute has tensors of several roles", callers_line(),
                         "put parameters and buffers into attributes of their own")  # fmt: skip
    return _without_marks(value), roles.pop()


def _roles_in(value: Any) -> set[Role]:
    if isinstance(value, Marked):
        return {value.role}
    return {role for item in _items(value) for role in _roles_in(item)}


def _items(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[Any, Any]", value).values()
    return cast("list[Any]", value) if isinstance(value, list | tuple) else ()


def _without_marks(value: Any) -> Any:
    if isinstance(value, Marked):
        return value.tensor
    if isinstance(value, dict):
        items = cast("dict[Any, Any]", value).items()
        return {name: _without_marks(item) for name, item in items}
    if isinstance(value, list | tuple):
        parts = [_without_marks(item) for item in _items(cast("object", value))]
        return parts if isinstance(value, list) else tuple(parts)
    return value
