"""State that a model keeps between calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from threading import Lock

import numpy as np

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import ALIGNMENT, TensorSpec
from modelcc.ir.types import Array
from modelcc.runtime.arguments import address_of, as_input
from modelcc.runtime.errors import InputError
from modelcc.runtime.loader import NativeCode


class States:
    """The states of a session, each at a fixed address, where calls update it.

    Calls hold the ``lock``: each starts from the previous one's states.
    """

    def __init__(self, artifact: Artifact, code: NativeCode) -> None:
        """In their initial values, for calls of ``code``."""
        states = artifact.manifest.states
        specs = {spec.name: spec for spec in artifact.manifest.inputs}
        self._specs = {name: specs[state.input] for name, state in states.items()}
        self._initial = {n: artifact.states[n] for n, state in states.items() if state.given}
        self._now = {name: _memory(spec) for name, spec in self._specs.items()}
        self.inputs = {state.input: self._now[name] for name, state in states.items()}
        """Inputs of a call, by tensor names, which it mutates."""
        self.lock = Lock()
        self._elsewhere = code.keep(self.inputs) if self._now else None
        for name, array in self._initial.items():
            self._now[name][...] = array
        if self._elsewhere is not None:
            self._elsewhere.changed()

    def __len__(self) -> int:
        return len(self._now)

    @property
    def now(self) -> dict[str, Array]:
        """Read-only copies by name."""
        with self.lock:
            self.fetch(self.inputs)
            return {name: _read_only(array.copy()) for name, array in self._now.items()}

    def fetch(self, inputs: Iterable[str]) -> None:
        """Makes the arrays of these inputs current; requires the lock."""
        if self._elsewhere is not None:
            self._elsewhere.fetch(inputs)

    def reset(self, values: Mapping[str, object]) -> None:
        """Sets them to ``values``, and the others to their initial values."""
        unknown = [name for name in values if name not in self._now]
        if unknown:
            known = ", ".join(self._now) or "none"
            raise InputError("states", f"names of states ({known})", f"'{unknown[0]}'", "check it")
        given = {name: _value(self._specs[name], value) for name, value in values.items()}
        with self.lock:
            for name, array in self._now.items():
                array[...] = given.get(name, self._initial.get(name, 0))
            if self._elsewhere is not None:
                self._elsewhere.changed()


def _memory(spec: TensorSpec) -> Array:
    """Zeros with vector alignment; their pages are committed on first write."""
    dtype, shape = np.dtype(spec.dtype.numpy), _shape(spec)
    block = np.zeros(prod(shape) * dtype.itemsize + ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, block, -address_of(block) % ALIGNMENT)


def _read_only(array: Array) -> Array:
    array.flags.writeable = False
    return array


def _shape(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(extent for extent in spec.shape if isinstance(extent, int))


def _value(spec: TensorSpec, value: object) -> Array:
    array = as_input(spec, value)
    if array.shape != _shape(spec):
        given = f"an array of shape {list(array.shape)}"
        raise InputError(f"state '{spec.name}'", f"{spec}", given, "give one of this shape")
    return array
