"""Names of one ONNX graph, sub-graph or function body during conversion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onnx import AttributeProto

from modelcc.frontends.kit.emit import Emitter


@dataclass(frozen=True)
class Scope:
    """ONNX names → values, looked up from inner to outer scopes; None if it could not be imported.

    ``prefix`` are the labels of the calling nodes; ``arguments`` the attributes passed to the
    function whose body this is; ``calls`` the functions under expansion.  ``emitter`` emits the
    nodes; if it is not that of ``outer``, ``capture`` captures values from there.
    """

    opsets: Mapping[str, int]
    emitter: Emitter
    prefix: tuple[str, ...] = ()
    outer: Scope | None = None
    arguments: Mapping[str, AttributeProto] | None = None
    calls: tuple[tuple[str, str], ...] = ()
    values: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    capture: Callable[[str], str] | None = None

    def find(self, name: str) -> str | None:
        """Value of ``name``; KeyError if there is none."""
        if name in self.values:
            return self.values[name]
        if self.outer is None:
            raise KeyError(name)
        value = self.outer.find(name)
        return self.capture(value) if value and self.capture is not None else value

    def names(self) -> set[str]:
        """Every name visible here."""
        outer = self.outer.names() if self.outer is not None else set[str]()
        return outer | self.values.keys()
