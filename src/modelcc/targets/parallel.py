"""Arguments of the outlined body of a parallel loop, for any language: called by the pool, or
directly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import checks_in

T = TypeVar("T")


def captured(
    outlined: Function, first: Iterable[T], size: Callable[[str], T], faults: Callable[[], T]
) -> list[T]:
    """What ``outlined`` captures, without its range: ``first``, buffers and values in the order of
    the language, sizes by name, and the memory of its checks if there are any."""
    sizes = map(size, outlined.sizes[:-2])
    return [*first, *sizes, *([faults()] if checks_in(outlined) else [])]


def with_range(outlined: Function, arguments: Sequence[T], ends: tuple[T, T]) -> tuple[T, ...]:
    """All arguments: ``captured`` ones, with the range as the last of the sizes."""
    place = len(arguments) - bool(checks_in(outlined))
    return (*arguments[:place], *ends, *arguments[place:])
