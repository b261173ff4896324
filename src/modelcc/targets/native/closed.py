"""Objects of an artifact need nothing of the system but what every system has."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.errors import ModelError
from modelcc.runtime.elf import read_object
from modelcc.runtime.symbols import foreign


def check_closed(objects: Sequence[bytes]) -> None:
    """:class:`ModelError` if ``objects`` need names that compiled code may not take from outside.

    Found here, it is found on every machine, not on those alone that lack the name.
    """
    names = foreign([read_object(contents) for contents in objects])
    if names:
        raise ModelError(
            f"the compiled code needs {', '.join(names)}, which artifacts do not bring along",
            (),
            "a fault of modelcc or of the C compiler; please report it with the model and --cpu",
        )
