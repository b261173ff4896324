"""What a model keeps from call to call: variables by name, and variable tensors."""

from __future__ import annotations

import numpy as np

from modelcc.frontends.kit.emit import Emitter
from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.kit.shapes import is_symbolic
from modelcc.ir.types import Array, TensorType


class Variables:
    """The states of a model under conversion by their names; ``emitter`` is that of its graph.

    A state becomes an input when it is first read; what it is at the end becomes an output.
    """

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._before: dict[str, str] = {}
        self._now: dict[str, str] = {}
        self._handles: dict[str, int] = {}
        self.initial: dict[str, Array] = {}

    def handle(self, name: str) -> int:
        """A number that stands for the variable of this name."""
        self._handles.setdefault(name, len(self._handles))
        return self._handles[name]

    def named(self, handle: int) -> str:
        """The name of the variable that a number stands for."""
        return list(self._handles)[handle]

    def begin(self, name: str, contents: Array) -> None:
        """What the state is before the first call."""
        self.initial[name] = contents

    def read(self, name: str, type: TensorType, emitter: Emitter) -> str:
        """The value that the state has now, in the graph of ``emitter``."""
        if emitter is not self._emitter:
            unsupported(f"variable {name!r} is used in a branch or a loop")
        if name not in self._now:
            if not type.is_static:
                unsupported(f"variable {name!r}, {type}, has no fixed size")
            self._before[name] = self._emitter.builder.input(f"{name}.before", type)
            self._now[name] = self._before[name]
        return self._now[name]

    def write(self, name: str, value: str, emitter: Emitter) -> None:
        """Give the state a new value, one of the graph of ``emitter``."""
        type = emitter.type_of(value)
        if emitter.type_of(self.read(name, type, emitter)) != type:
            unsupported(f"variable {name!r} becomes {type}")
        self._now[name] = value

    def changed(self) -> dict[str, tuple[str, str]]:
        """Inputs and new values of the states."""
        return {name: (before, self._now[name]) for name, before in self._before.items()}


def known_contents(emitter: Emitter, value: str) -> Array:
    """What a variable is initialised with, which must be known."""
    contents = emitter.contents(value)
    if contents is None or is_symbolic(contents):
        unsupported("a variable's first value is computed at run time")
    return np.asarray(contents)
