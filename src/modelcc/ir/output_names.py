"""Names of a program's outputs: the user's, or those with a mark where they are used otherwise.

An output may be called like an input, a constant, or a tensor in the arena that it is a copy of.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

_MARKED = re.compile(r"(.*)\.output\d*", re.DOTALL)


def bound_names(outputs: Sequence[str], taken: Collection[str]) -> tuple[str, ...]:
    """A name for each output that is not in ``taken``, and of which its own can be told."""
    used = set(taken)
    names: list[str] = []
    for output in outputs:
        name, number = output, 0
        while name in used or (number == 0 and _MARKED.fullmatch(output)):
            name = f"{output}.output{number or ''}"
            number += 1
        used.add(name)
        names.append(name)
    return tuple(names)


def user_name(bound: str) -> str:
    """The output's own name."""
    marked = _MARKED.fullmatch(bound)
    return marked[1] if marked else bound
