"""What a model keeps from call to call."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

import numpy as np

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import TensorSpec
from modelcc.ir.types import Array
from modelcc.runtime.arguments import as_input
from modelcc.runtime.errors import InputError


class States:
    """The states of a session.  Calls hold the ``lock``: each begins with what the last one left.

    No call writes to an array that was given away.
    """

    def __init__(self, artifact: Artifact) -> None:
        """As the model has them at first."""
        self._states = artifact.manifest.states
        specs = {spec.name: spec for spec in artifact.manifest.inputs}
        self._specs = {name: specs[state.input] for name, state in self._states.items()}
        self._initial = {
            name: artifact.states[name] if state.given else _zeros(self._specs[name])
            for name, state in self._states.items()
        }
        self._now = dict(self._initial)
        self.lock = Lock()

    def __len__(self) -> int:
        return len(self._states)

    @property
    def now(self) -> dict[str, Array]:
        """What they are, by name; the arrays cannot be written to."""
        return {name: _read_only(array) for name, array in self._now.items()}

    def reset(self, values: Mapping[str, object]) -> None:
        """Set them to ``values``, those that are not among these to what they were at first."""
        unknown = [name for name in values if name not in self._states]
        if unknown:
            known = ", ".join(self._states) or "none"
            raise InputError("states", f"names of states ({known})", f"'{unknown[0]}'", "check it")
        given = {name: _value(self._specs[name], value) for name, value in values.items()}
        with self.lock:
            self._now = {**self._initial, **given}

    def inputs(self) -> dict[str, Array]:
        """Inputs of the next call, by names of tensors."""
        return {state.input: self._now[name] for name, state in self._states.items()}

    def take(self, results: Mapping[str, Array]) -> None:
        """Keep what a call made of them."""
        self._now = {name: results[state.output] for name, state in self._states.items()}


def _read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _zeros(spec: TensorSpec) -> Array:
    return np.zeros(_shape(spec), spec.dtype.numpy)


def _shape(spec: TensorSpec) -> tuple[int, ...]:
    return tuple(extent for extent in spec.shape if isinstance(extent, int))


def _value(spec: TensorSpec, value: object) -> Array:
    array = as_input(spec, value)
    if array.shape != _shape(spec):
        given = f"an array of shape {list(array.shape)}"
        raise InputError(f"state '{spec.name}'", f"{spec}", given, "give one of this shape")
    return array.copy(order="C")
