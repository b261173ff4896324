"""Names of one ONNX graph, sub-graph or function body during conversion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onnx import AttributeProto


@dataclass(frozen=True)
class Scope:
    """ONNX names → values, looked up outwards; a value is None where it could not be imported.

    ``prefix`` are the labels of the calling nodes; ``arguments`` the attributes given to the
    function whose body this is; ``calls`` the functions under expansion.
    """

    opsets: Mapping[str, int]
    prefix: tuple[str, ...] = ()
    outer: Scope | None = None
    arguments: Mapping[str, AttributeProto] | None = None
    calls: tuple[tuple[str, str], ...] = ()
    values: dict[str, str | None] = field(default_factory=dict[str, "str | None"])

    def find(self, name: str) -> str | None:
        """Value of ``name``; KeyError if there is none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise KeyError(name)

    def names(self) -> set[str]:
        """Every name visible here."""
        outer = self.outer.names() if self.outer is not None else set[str]()
        return outer | self.values.keys()
