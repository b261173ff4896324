"""Objects of an artifact need nothing of the system but what every system has."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.artifact.manifest import LibrarySpec
from modelcc.ir.errors import ModelError
from modelcc.runtime.elf import read_object
from modelcc.runtime.macho import NotMachError, read_mach_object
from modelcc.runtime.symbols import ObjectNames, foreign


def check_closed(objects: Sequence[bytes], called: Sequence[LibrarySpec] = ()) -> None:
    """:class:`ModelError` if ``objects`` need names that compiled code may not take from outside,
    and that are none of the ``called`` libraries'.

    Found here, it is found on every machine, not on those alone that lack the name.
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
    """Of an object for either kind of system."""
    try:
        return read_mach_object(contents)
    except NotMachError:
        return read_object(contents)
