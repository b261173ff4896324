"""What a tensor is to the module that has it: trained, frozen, or a buffer."""

from __future__ import annotations

from typing import Any, Literal

from modelcc.ir.errors import ModelError
from modelcc.tensor.lazy import callers_line
from modelcc.tensor.tensor import Tensor

Role = Literal["parameter", "frozen", "buffer", "transient"]
"""Trained; a parameter that is not; part of the state; a buffer that is in no state dict."""


class Marked:
    """A tensor with its role, on its way to an attribute of a module."""

    tensor: Tensor
    role: Role


class Parameter(Marked):
    """Marks a tensor that is trained: ``self.weight = Parameter(tensor)``.

    The module keeps the tensor itself and notes the name.  :class:`ModelError` for other elements
    than floats, unless it is not ``trainable``.
    """

    def __new__(cls, value: Any, trainable: bool = True) -> Any:
        """``value`` is a tensor, or what one is made of."""
        marked = super().__new__(cls)
        marked.tensor = Tensor(value)
        if trainable and not marked.tensor.dtype.is_float:
            raise ModelError(f"a parameter of {marked.tensor.dtype} cannot be trained",
                             callers_line(), "make it a Buffer")  # fmt: skip
        marked.role = "parameter" if trainable else "frozen"
        return marked


class Buffer(Marked):
    """Marks a tensor that is not trained; if ``persistent``, it is in the state dict.

    Tensors without a mark are persistent buffers.
    """

    def __new__(cls, value: Any, persistent: bool = True) -> Any:
        """``value`` is a tensor, or what one is made of."""
        marked = super().__new__(cls)
        marked.tensor = Tensor(value)
        marked.role = "buffer" if persistent else "transient"
        return marked


def unmarked(value: Any) -> tuple[Any, Role | None]:
    """``value`` without marks, in lists and dicts too, and the role that they say."""
    if isinstance(value, Marked):
        return value.tensor, value.role
    if isinstance(value, list | tuple):
        pairs = [unmarked(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
        found = _common([role for _, role in pairs])
        if found is None:
            return value, None  # pyright: ignore[reportUnknownVariableType]
        kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
        return kind([item for item, _ in pairs]), found
    if isinstance(value, dict):
        items = {k: unmarked(v) for k, v in value.items()}  # pyright: ignore
        found = _common([role for _, role in items.values()])
        return (value if found is None else {k: v for k, (v, _) in items.items()}), found
    return value, None


def _common(roles: list[Role | None]) -> Role | None:
    found = {role for role in roles if role is not None}
    if len(found) > 1:
        raise ModelError("one attribute has tensors of several roles", callers_line(),
                         "put parameters and buffers into attributes of their own")  # fmt: skip
    return next(iter(found), None)
