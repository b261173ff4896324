"""Fresh value names, deterministic for the sequence of requests; and names of outputs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

_MARKED = re.compile(r"(.*)\.output\d*", re.DOTALL)


class Names:
    """Names in use.  ``fresh`` returns ``base``, ``base_1``, ``base_2`` … in O(1)."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = dict.fromkeys(taken)
        self._next: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._taken

    def claim(self, name: str) -> str:
        """Reserve exactly ``name``; ``ValueError`` if it is taken."""
        if name in self._taken:
            raise ValueError(f"value name {name!r} is used twice")
        self._taken[name] = None
        return name

    def fresh(self, base: str) -> str:
        """Reserve and return an unused name."""
        name, n = base, self._next.get(base, 0)
        while name in self._taken:
            n += 1
            name = f"{base}_{n}"
        self._next[base] = n
        return self.claim(name)


def bound_names(outputs: Sequence[str], taken: Collection[str]) -> tuple[str, ...]:
    """A name for each output that is not in ``taken``, from which its own can be recovered.

    An output may have the name of an input, a constant, or a tensor in the arena that it copies:
    it then gets a suffix.
    """
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
