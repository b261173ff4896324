"""JSON values converted to required types: TypeError for others."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias, TypeGuard, TypeVar

Object: TypeAlias = dict[str, object]
T = TypeVar("T")


def is_object(value: object) -> TypeGuard[Object]:
    """Whether a JSON value is an object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[object]]:
    """Whether a JSON value is a list."""
    return isinstance(value, list)


def object_of(value: object) -> Object:
    """An object."""
    if not is_object(value):
        raise TypeError(f"{type(value).__name__} in place of an object")
    return value


def list_of(value: object, read: Callable[[object], T]) -> tuple[T, ...]:
    """A list with ``read`` applied to each item."""
    if not is_list(value):
        raise TypeError(f"{type(value).__name__} in place of a list")
    return tuple(map(read, value))


def whole_number_of(value: object) -> int:
    """An integer."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} in place of a whole number")
    return value


def number_of(value: object) -> float:
    """A number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{type(value).__name__} in place of a number")
    return value


def parsed_object(text: str | bytes) -> Object:
    """The object in a JSON text; ValueError if the text is invalid."""
    return object_of(json.loads(text))
