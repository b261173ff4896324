"""Plugins from other packages: objects named by entry points of modelcc's groups."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from modelcc.ir.errors import ModelError

Plugin = TypeVar("Plugin")


def plugins(group: str, kind: type[Plugin]) -> tuple[tuple[EntryPoint, Plugin], ...]:
    """The objects of a group by the names of their entry points.

    :class:`ModelError` if one cannot be imported or is not of ``kind``.
    """
    points = sorted(entry_points(group=group), key=lambda point: point.name)
    return tuple((point, load_plugin(point, kind)) for point in points)


def load_plugin(point: EntryPoint, kind: type[Plugin]) -> Plugin:
    """The object that an entry point names; errors as of :func:`plugins`."""
    hint = "reinstall or uninstall the package that provides it"
    try:
        value: object = point.load()
    except (ImportError, AttributeError) as error:
        message = f"{point.group} {point.name!r} of {point.value} cannot be imported: {error}"
        raise ModelError(message, (), hint) from error
    if not isinstance(value, kind):
        wanted, given = kind.__name__, type(value).__name__
        raise ModelError(f"{point.value} is a {given}, not of the kind {wanted}", (), hint)
    return value
