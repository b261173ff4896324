"""What callers give, checked: each function returns a value in its one form, or says what is wrong.

Errors are :class:`~modelcc.ir.errors.ModelError`: which argument, what is expected, what is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

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


def whole_number(what: str, value: Any, low: int = 0, high: int | None = None) -> int:
    """An ``int`` from ``low`` to ``high``."""
    bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
    expected = f"{what} must be a whole number {bounds}"
    try:
        number = None if _is(value, bool, np.bool_) else index(value)
    except TypeError:
        number = None
    if number is None:
        text = isinstance(value, str) and value.isdecimal()
        hint = f"write {value} without quotes" if text else None
        raise ModelError(f"{expected}, not {shown(value)}", (), hint)
    if number < low or (high is not None and number > high):
        raise ModelError(f"{expected}, not {number}")
    return number


def number(what: str, value: Any) -> float:
    """A finite number of at least 0."""
    try:
        found = None if _is(value, bool, str, bytes) else float(value)
    except (TypeError, ValueError):
        found = None
    if found is None or not 0 <= found < float("inf"):
        raise ModelError(f"{what} must be a number of at least 0, not {shown(value)}")
    return found


def flag(what: str, value: object) -> bool:
    """True or False."""
    if not _is(value, bool, np.bool_):
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


def dimensions(what: str, value: Any) -> tuple[tuple[str, int | Range], ...]:
    """Named dimensions with a size, or with the least and the greatest one."""
    pairs = _items(value.items() if hasattr(value, "items") else value)
    if pairs is None or not all(_is_pair(pair) and isinstance(pair[0], str) for pair in pairs):
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


def _size(what: str, size: Any) -> int | Range:
    ends = (size.lo, size.hi) if isinstance(size, Range) else size
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


def mapping(what: str, value: Any, example: str) -> dict[str, Any]:
    """A dict with keys of ``str``."""
    if not _is(value, dict, Mapping) or not all(isinstance(key, str) for key in value):
        raise ModelError(f"{what} must be a dict by name, not {shown(value)}", (), example)
    return dict(value)


def file_path(what: str, value: Any) -> Path:
    """A path."""
    text: object = fspath(cast("str", value)) if _is(value, str, PathLike) else None
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


def _is(value: object, *kinds: type) -> bool:
    return isinstance(value, kinds)


def _is_pair(value: Any) -> bool:
    return _is(value, tuple, list) and len(value) == 2


def _items(value: Any) -> Sequence[Any] | None:
    """Of a list, tuple, set …; None if it is nothing of that kind."""
    return tuple(value) if _is(value, Iterable) and not _is(value, str, bytes) else None
