"""The dialects there are: the built-in one, and those that other packages install.

A package adds a dialect by an entry point of the group ``modelcc.dialects`` that names a
:class:`~modelcc.ir.op.Dialect`::

    [project.entry-points."modelcc.dialects"]
    waves = "waves_dialect:WAVES"
"""

from __future__ import annotations

from modelcc.ir.errors import ModelError
from modelcc.ir.op import Dialect
from modelcc.ir.plugin import plugins
from modelcc.ops.catalog import MCC

GROUP = "modelcc.dialects"


def dialects() -> tuple[Dialect, ...]:
    """The built-in dialect first, then installed ones by name.

    :class:`ModelError` if an installed one cannot be imported, is no dialect or takes a name that
    is in use.
    """
    found = [MCC]
    for point, added in plugins(GROUP, Dialect):
        _check_ops(added)
        if any(added.name == known.name for known in found):
            message = f"two packages provide a dialect {added.name!r}; one is {point.value}"
            raise ModelError(message, (), "uninstall one of them")
        found.append(added)
    return tuple(found)


def _check_ops(dialect: Dialect) -> None:
    foreign = [op.mnemonic() for op in dialect.ops if op.dialect != dialect.name]
    if foreign:
        message = f"dialect {dialect.name!r} lists {foreign[0]}, which is of another"
        raise ModelError(message, (), "reinstall or uninstall the package that provides it")
