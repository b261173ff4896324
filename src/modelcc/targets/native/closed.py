"""Checks that objects of an artifact need only symbols that every system has."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.artifact.manifest import LibrarySpec
from modelcc.ir.errors import ModelError
from modelcc.runtime.linking.elf import read_object
from modelcc.runtime.linking.macho import NotMachError, read_mach_object
from modelcc.runtime.linking.symbols import ObjectNames, foreign


def check_closed(objects: Sequence[bytes], called: Sequence[LibrarySpec] = ()) -> None:
    """Raises :class:`ModelError` if ``objects`` have undefined symbols that compiled code may not
    take from outside, and that the ``called`` libraries do not define.

    Checked here, it fails on every machine, not only on those that lack the symbol.
    """
    given = {symbol for spec in called for symbol in spec.symbols}
    found = foreign(list(map(_names, objects)))
    names = [name for name in found if name not in given]
    if names:
        raise ModelError(
            f"the compiled code needs {', '.join(names)}, which artifacts do not bring along",
            (),
            "a fault of modelcc or of the C compiler; please report it with the model and --cpu",
        )


def _names(contents: bytes) -> ObjectNames:
    """The symbols of an object of either format."""
    try:
        return read_mach_object(contents)
    except NotMachError:
        return read_object(contents)
