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
        self.initial: dict[str, Array] = {}

    def begin(self, name: str, contents: Array) -> None:
        """What the state is before the first call."""
        self.initial[name] = contents

    def read(self, name: str, type: TensorType) -> str:
        """The value that the state has now."""
        if name not in self._now:
            if not type.is_static:
                unsupported(f"variable {name!r}, {type}, has no fixed size")
            self._before[name] = self._emitter.builder.input(f"{name}.before", type)
            self._now[name] = self._before[name]
        return self._now[name]

    def write(self, name: str, value: str) -> None:
        """Give the state a new value."""
        type = self._emitter.type_of(value)
        if self._emitter.type_of(self.read(name, type)) != type:
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
