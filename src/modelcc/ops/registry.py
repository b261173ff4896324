"""The dialects there are: the built-in one, and those that other packages install.

A package adds a dialect by an entry point of the group ``modelcc.dialects`` that names a
:class:`~modelcc.ir.op.Dialect`::

    [project.entry-points."modelcc.dialects"]
    waves = "waves_dialect:WAVES"
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from modelcc.ir.op import Dialect, ModelError
from modelcc.ops.catalog import MCC

GROUP = "modelcc.dialects"


def dialects() -> tuple[Dialect, ...]:
    """The built-in dialect first, then installed ones by name.

    :class:`ModelError` if an installed one cannot be imported, is no dialect or takes a name that
    is in use.
    """
    found = [MCC]
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        added = _load(point)
        if any(added.name == known.name for known in found):
            message = f"two packages provide a dialect {added.name!r}; one is {point.value}"
            raise ModelError(message, (), "uninstall one of them")
        found.append(added)
    return tuple(found)


def _load(point: EntryPoint) -> Dialect:
    hint = "reinstall or uninstall the package that provides it"
    try:
        value: object = point.load()
    except (ImportError, AttributeError) as error:
        message = f"dialect {point.name!r} of {point.value} cannot be imported: {error}"
        raise ModelError(message, (), hint) from error
    if not isinstance(value, Dialect):
        raise ModelError(f"{point.value} is a {type(value).__name__}, not a dialect", (), hint)
    foreign = [op.mnemonic() for op in value.ops if op.dialect != value.name]
    if foreign:
        raise ModelError(
            f"dialect {value.name!r} lists {foreign[0]}, which is of another", (), hint
        )
    return value
