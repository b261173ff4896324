"""Fresh value names, the same ones for the same sequence of requests."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """Names in use.  ``fresh`` answers ``base``, ``base_1``, ``base_2`` … in O(1)."""

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
        """Reserve and return a name that nothing has yet."""
        name, n = base, self._next.get(base, 0)
        while name in self._taken:
            n += 1
            name = f"{base}_{n}"
        self._next[base] = n
        return self.claim(name)
