"""Bounds of indices that are loaded from memory, and messages for violations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.index import Index, evaluate

_NO_PLACES = ("length", "start")
"""Nouns of values whose bound is not the length of the indexed thing."""


@dataclass(frozen=True)
class IndexBound:
    """``0 <= value < extent`` for a value of type i64.

    ``what`` is the thing that is indexed (``axis 0 of 'wte'``), ``noun`` the user's word for the
    value, and ``source`` names the user's nodes.  ``wrapped``: ``extent`` was added to negative
    values.  ``number`` identifies the bound within a kernel.
    """

    extent: Index
    what: str = ""
    noun: str = "index"
    wrapped: bool = False
    source: tuple[str, ...] = ()
    number: int = 0

    def requirement(self) -> str:
        """The requirement on the value, with its location in the model."""
        where = f"{', '.join(self.source)}: " if self.source else ""
        low = f"{-1 * self.extent}" if self.wrapped else "0"
        about = f" ({self.what})" if self.what else ""
        return f"{where}{self.noun} within {low} ... {self.extent - 1}{about}"

    def fault(self, value: int, sizes: Mapping[str, int]) -> str:
        """The message for an invalid ``value``, without its location in the model."""
        extent = evaluate(self.extent, sizes)
        given = value - extent if self.wrapped and value < 0 else value
        low = -extent if self.wrapped else 0
        long = "" if self.noun in _NO_PLACES else f", {extent} long"
        about = f" ({self.what}{long})" if self.what else ""
        if extent < 1:
            return f"{self.noun} {given} is outside of what has no elements{about}"
        return f"{self.noun} {given} is outside of {low} … {extent - 1}{about}"
