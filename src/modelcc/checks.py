"""What callers give, checked: each function returns a value in its one form, or says what is wrong.

Errors are :class:`~modelcc.ir.errors.ModelError`: which argument, what is expected, what is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from os import PathLike, fspath
from pathlib import Path
from typing import Protocol, SupportsFloat, SupportsIndex, TypeGuard, runtime_checkable

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Range

_PLAIN = (str, bytes, int, float, bool, list, tuple, dict, set)
_SHOWN = 60
"""Characters of a wrong value that a message repeats."""

_SIZES = "give a number, as in {'batch': 8}, or the least and greatest one: {'batch': (1, 512)}"


def shown(value: object) -> str:
    """A wrong argument as an error names it: its text if that is short, and its type."""
    kind = type(value)
    builtin = kind.__module__ == "builtins"
    name = kind.__qualname__ if builtin else f"{kind.__module__}.{kind.__qualname__}"
    text = repr(value) if kind in _PLAIN else ""
    if value is None:
        return "None"
    return f"{text} ({name})" if 0 < len(text) <= _SHOWN else f"a value of type {name}"


def whole_number(what: str, value: object, low: int = 0, high: int | None = None) -> int:
    """An ``int`` from ``low`` to ``high``."""
    bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
    expected = f"{what} must be a whole number {bounds}"
    try:
        number = index(value) if isinstance(value, SupportsIndex) and not _is_bool(value) else None
    except TypeError:
        number = None
    if number is None:
        text = isinstance(value, str) and value.isdecimal()
        hint = f"write {value} without quotes" if text else None
        raise ModelError(f"{expected}, not {shown(value)}", (), hint)
    if number < low or (high is not None and number > high):
        raise ModelError(f"{expected}, not {number}")
    return number


def number(what: str, value: object) -> float:
    """A finite number of at least 0."""
    try:
        fits = isinstance(value, SupportsFloat | SupportsIndex)
        found = float(value) if fits and not _is_bool(value) else None
    except (TypeError, ValueError):
        found = None
    if found is None or not 0 <= found < float("inf"):
        raise ModelError(f"{what} must be a number of at least 0, not {shown(value)}")
    return found


def _is_bool(value: object) -> bool:
    return isinstance(value, bool | np.bool_)


def flag(what: str, value: object) -> bool:
    """True or False."""
    if not _is_bool(value):
        raise ModelError(f"{what} must be True or False, not {shown(value)}")
    return bool(value)


def optional_flag(what: str, value: object) -> bool | None:
    """True, False, or None for what is left open."""
    return None if value is None else flag(what, value)


def text(what: str, value: object, hint: str | None = None) -> str:
    """A ``str``."""
    if not isinstance(value, str):
        raise ModelError(f"{what} must be a str, not {shown(value)}", (), hint)
    return value


def names(what: str, value: object) -> tuple[str, ...]:
    """Several ``str``; one alone is refused, for it would be taken letter by letter."""
    if isinstance(value, str):
        raise ModelError(f"{what} must be a sequence of str, not one", (), f"give [{value!r}]")
    items = _items(value)
    found = tuple(item for item in items or () if isinstance(item, str))
    if items is None or len(found) < len(items):
        raise ModelError(f"{what} must be a sequence of str, not {shown(value)}")
    return found


def dimensions(what: str, value: object) -> tuple[tuple[str, int | Range], ...]:
    """Named dimensions with a size, or with the least and the greatest one."""
    given = pairs_of(value)
    pairs = [(name, size) for name, size in given or () if isinstance(name, str)]
    if given is None or len(pairs) < len(given):
        hint = f"for example {what}={{'batch': 8}}"
        raise ModelError(f"{what} must be a dict of sizes by name, not {shown(value)}", (), hint)
    for name, times in Counter(name for name, _ in pairs).items():
        if times > 1:
            raise ModelError(f"{what} has the dimension {name!r} twice", (), "give each one size")
    return tuple((name, _size(f"{what}[{name!r}]", size)) for name, size in pairs)


def sizes(what: str, value: object) -> dict[str, int]:
    """Named dimensions with one size each."""
    found: dict[str, int] = {}
    for name, size in dimensions(what, value):
        if not isinstance(size, int):
            raise ModelError(f"{what}[{name!r}] is a range", (), "give one number")
        found[name] = size
    return found


@runtime_checkable
class _HasItems(Protocol):
    def items(self) -> Iterable[object]: ...


def pairs_of(value: object) -> Sequence[tuple[object, object]] | None:
    """Of a dict, or of whatever holds pairs; None if it is nothing of that kind."""
    items = _items(value.items() if isinstance(value, _HasItems) else value)
    pairs = [(item[0], item[1]) for item in items or () if _is_pair(item)]
    return None if items is None or len(pairs) < len(items) else pairs


def _size(what: str, size: object) -> int | Range:
    ends: object = (size.lo, size.hi) if isinstance(size, Range) else size
    if _is_pair(ends):
        low = whole_number(f"the least size in {what}", ends[0], 1)
        high = None if ends[1] is None else whole_number(f"the greatest size in {what}", ends[1], 1)
        if high is not None and high < low:
            raise ModelError(f"{what} is {low} to {high}, which no size is", (), _SIZES)
        return Range(low, high)
    try:
        return whole_number(what, size)
    except ModelError as error:
        raise ModelError(error.message, (), error.hint or _SIZES) from None


def mapping(what: str, value: object, example: str) -> dict[str, object]:
    """A dict with keys of ``str``."""
    if not _is_named_values(value):
        raise ModelError(f"{what} must be a dict by name, not {shown(value)}", (), example)
    return dict(value)


def file_path(what: str, value: object) -> Path:
    """A path."""
    text: object = fspath(value) if _is_path(value) else None
    if isinstance(text, str) and text and "\0" not in text:
        return Path(text)
    hint = f"for example {what}='model.mcc'"
    raise ModelError(f"{what} must be a path (str or pathlib.Path), not {shown(value)}", (), hint)


def instance(what: str, value: object, kind: type, hint: str) -> None:
    """Refuse what is no ``kind``."""
    if not isinstance(value, kind):
        raise ModelError(f"{what} must be {kind.__name__}, not {shown(value)}", (), hint)


def function(what: str, value: Callable[..., object] | None, example: str) -> None:
    """Refuse what cannot be called; None stands for nothing."""
    if value is not None and not callable(value):
        raise ModelError(f"{what} must be a function, not {shown(value)}", (), example)


def _is_path(value: object) -> TypeGuard[str | PathLike[str]]:
    return isinstance(value, str | PathLike)


def _is_named_values(value: object) -> TypeGuard[Mapping[str, object]]:
    return _is_mapping(value) and all(isinstance(key, str) for key in value)


def _is_mapping(value: object) -> TypeGuard[Mapping[object, object]]:
    return isinstance(value, Mapping)


def _is_sequence(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, tuple | list)


def _is_pair(value: object) -> TypeGuard[Sequence[object]]:
    return _is_sequence(value) and len(value) == 2


def _is_iterable(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def _items(value: object) -> Sequence[object] | None:
    """Of a list, tuple, set …; None if it is nothing of that kind."""
    return tuple(value) if _is_iterable(value) else None
