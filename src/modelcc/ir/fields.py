"""Children of nodes, derived from the annotations of their fields, and nodes with these replaced.

A kind of node is declared once, as a frozen dataclass.  Its first use generates functions for it,
as ``dataclass`` generates ``__init__``, so that traversal costs a look-up and a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Generic, Protocol, TypeVar

N = TypeVar("N")
T = TypeVar("T")
F = TypeVar("F")

_TUPLE = re.compile(r"tuple\[(\w+), (?:\.\.\.|\1)\]")


class _Change(Protocol[T]):
    def __call__(self, node: N, change: Callable[[T], T], /) -> N: ...


@dataclass(frozen=True)
class _Held:
    """Python text for the children in a field of ``x``: as items of a tuple, the field with these
    changed, and a test whether that is the same object."""

    item: str
    new: str
    test: str

    def optional(self, x: str) -> _Held:
        """The same for a field that may be None."""
        return _Held(
            f"*(() if {x} is None else ({self.item},))",
            f"None if {x} is None else {self.new}",
            f"({x} is None or {self.test})",
        )


class _Functions(dict[type, F]):
    """Functions for kinds of nodes, each generated at its first lookup."""

    def __init__(self, make: Callable[[type], F]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, kind: type) -> F:
        made = self[kind] = self._make(kind)
        return made


class NodeParts(Generic[T]):
    """Children in fields annotated ``name``, ``name | None`` or as tuples of these, in the order of
    the fields, and in the dataclasses ``through`` that fields hold."""

    def __init__(self, name: str, *through: type) -> None:
        self._name = name
        self._through = {kind.__name__ for kind in through}
        self.listings = _Functions(self._listing)
        """For each kind of node its function :meth:`of`, for loops over many nodes."""
        self._changes = _Functions(self._change)

    def of(self, node: object) -> tuple[T, ...]:
        """The parts of ``node``."""
        return self.listings[type(node)](node)

    def changed(self, node: N, change: Callable[[T], T]) -> N:
        """``node`` with each part changed; itself if that changes nothing."""
        return self._changes[type(node)](node, change)

    def replaced(self, node: N, new: Sequence[T]) -> N:
        """``node`` with other parts, equally many."""
        parts = iter(new)
        return self.changed(node, lambda _: next(parts))

    def _listing(self, kind: type) -> Callable[[object], tuple[T, ...]]:
        items = [held.item for f in fields(kind) if (held := self._held(f.name, str(f.type)))]
        whole = len(items) == 1 and items[0].startswith("*x.")
        source = items[0][1:] if whole else f"({''.join(f'{item}, ' for item in items)})"
        return eval(f"lambda x: {source}", {"of": self.of})

    def _change(self, kind: type) -> _Change[T]:
        held = {f.name: self._held(f.name, str(f.type)) for f in fields(kind)}
        new = "".join(f"_{name} := {h.new}, " for name, h in held.items() if h)
        tests = " and ".join(h.test for h in held.values() if h)
        given = ", ".join(f"_{name}" if h else f"x.{name}" for name, h in held.items())
        source = f"({new}) and (x if {tests} else kind({given}))" if new else "x"
        names = {"kind": kind, "changed": self.changed, "same": same}
        return eval(f"lambda x, change: {source}", names)

    def _held(self, field: str, annotation: str) -> _Held | None:
        x, one = f"x.{field}", annotation.removesuffix(" | None")
        several = _TUPLE.fullmatch(one)
        kind = several[1] if several and one != self._name else one
        if kind != self._name and kind not in self._through:
            return None
        inside = kind != self._name
        if kind == one:
            held = _Held(f"*of({x})", f"changed({x}, change)", f"_{field} is {x}")
            held = held if inside else _Held(x, f"change({x})", held.test)
        else:
            item = f"*[part for y in {x} for part in of(y)]" if inside else f"*{x}"
            change = "changed(y, change)" if inside else "change(y)"
            held = _Held(item, f"tuple([{change} for y in {x}])", f"same(_{field}, {x})")
        return held if one == annotation else held.optional(x)


def same(new: Sequence[object], old: Sequence[object]) -> bool:
    """Whether ``new`` and ``old`` are the same objects."""
    return all([a is b for a, b in zip(new, old, strict=True)])
