"""State that persists between calls: variables by name, and variable tensors."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.ir.types import Array, TensorType


class Variables:
    """The states of a model under conversion by their names; ``emitter`` is that of its graph.

    A state becomes an input when first read; its final value becomes an output.
    """

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._before: dict[str, str] = {}
        self._now: dict[str, str] = {}
        self._handles: dict[str, int] = {}
        self.initial: dict[str, Array] = {}

    def handle(self, name: str) -> int:
        """The handle, a number, of the variable of this name."""
        self._handles.setdefault(name, len(self._handles))
        return self._handles[name]

    def named(self, handle: int) -> str:
        """The name of the variable with this handle."""
        return list(self._handles)[handle]

    def begin(self, name: str, contents: Array) -> None:
        """Sets the initial contents of a state."""
        self.initial[name] = contents

    def read(self, name: str, type: TensorType, emitter: Emitter) -> str:
        """The current value of the state, in the graph of ``emitter``."""
        if emitter is not self._emitter:
            unsupported(f"variable {name!r} is used in a branch or a loop")
        if name not in self._now:
            if not type.is_static:
                unsupported(f"variable {name!r}, {type}, has no fixed size")
            self._before[name] = self._emitter.builder.input(f"{name}.before", type)
            self._now[name] = self._before[name]
        return self._now[name]

    def write(self, name: str, value: str, emitter: Emitter) -> None:
        """Sets the state to a new value of the graph of ``emitter``."""
        type = emitter.type_of(value)
        if emitter.type_of(self.read(name, type, emitter)) != type:
            unsupported(f"variable {name!r} becomes {type}")
        self._now[name] = value

    def changed(self) -> dict[str, tuple[str, str]]:
        """Inputs and new values of the states."""
        return {name: (before, self._now[name]) for name, before in self._before.items()}


def known_contents(emitter: Emitter, value: str) -> Array:
    """The initial contents of a variable, which must be constant."""
    contents = emitter.contents(value)
    if contents is None or is_symbolic(contents):
        unsupported("a variable's first value is computed at run time")
    return np.asarray(contents)
