"""Arguments and results that are not numeric tensors: lists, None, dicts and strings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import Manifest, TensorSpec
from modelcc.ir.structure import Interface, Records, Structure, leaves_of
from modelcc.ir.types import I64, STRING, Array
from modelcc.runtime.arguments import ordered, with_names
from modelcc.runtime.errors import InputError
from modelcc.runtime.host_steps import performed
from modelcc.runtime.loader import NativeCode
from modelcc.runtime.session import NamedOuts, Outs, Session
from modelcc.runtime.slot import Slot
from modelcc.runtime.states import States
from modelcc.runtime.texts import Texts

Value = Any
"""An array, a list of values, a dict of numbers, or None."""


class ValueSession(Session):
    """A session that takes and returns lists, None, dicts and strings, according to its interface,
    and keeps the model's states.

    Compiled code receives 64-bit handles of strings: those of the model are fixed, those of
    arguments are assigned anew in each call.
    """

    def __init__(
        self, artifact: Artifact, threads: int = 1, code: NativeCode | None = None
    ) -> None:
        """As for :class:`Session`."""
        manifest = artifact.manifest
        super().__init__(replace(artifact, manifest=_with_handles(manifest)), threads, code)
        self.states = States(artifact, self._code)
        self._specs = {s.name: s for s in (*manifest.inputs, *manifest.outputs)}
        self._interface = manifest.interface or Interface(
            {s.name: s.name for s in manifest.inputs}, {s.name: s.name for s in manifest.outputs}
        )
        self._gives_texts = any(spec.dtype == STRING for spec in manifest.outputs)
        self._texts = Texts(self._interface.texts)
        returned = (leaf for s in self._interface.outputs.values() for leaf in leaves_of(s))
        self._lent = {n: manifest.aliases[n] for n in returned if n in manifest.aliases}
        self._values = _values_manifest(manifest, self._interface)
        self._taken = len(self._values.inputs)
        self._own = Slot(self._model, self.states.inputs)
        self._direct = self._is_direct()

    def __call__(self, *arguments: object, out: Outs | None = None, **named: object) -> Value:
        """The model's output, or a tuple of its outputs; sequences are lists, empty optionals are
        None."""
        if self._direct and not self.states:
            return super().__call__(*arguments, out=out, **named)
        if self._direct and out is None and not named and len(arguments) == self._taken:
            with self.states.lock:
                made = self._own.at_once(arguments)
            if made is not None:
                return made[0] if len(made) == 1 else tuple(made)
            self._raise_failure()
        given = ordered(self._values, *with_names(arguments, named))
        results = tuple(self._called(given, out).values())
        return results[0] if len(results) == 1 else results

    def run(self, feeds: Mapping[str, object], out: NamedOuts | None = None) -> Value:
        """Outputs by name, for inputs by name; by tensor names if the inputs are, which returns
        states as well and leaves those of the session unchanged."""
        if feeds.keys() == self._names and feeds.keys() != self._interface.inputs.keys():
            return self._computed(feeds, out)
        return self._called(ordered(self._values, (), feeds), out)

    def _called(self, arguments: Sequence[object], out: Outs | None) -> dict[str, Value]:
        feeds: dict[str, object] = {}
        structures = self._interface.inputs.items()
        for (name, structure), value in zip(structures, arguments, strict=True):
            _take_apart(structure, value, name, feeds)
        with self.states.lock if self.states else nullcontext():
            slot = self._own if self.states else None
            results = self._computed(feeds | self.states.inputs, out, slot)
            self.states.fetch(self._lent.values())
            results |= {name: results[name].copy() for name in self._lent}
        return {n: _put_together(s, results) for n, s in self._interface.outputs.items()}

    def profile(
        self, feeds: Mapping[str, object], steps: int, runs: int = 20
    ) -> NDArray[np.float64]:
        """As for :class:`Session`, from the current states, which are not changed."""
        with self.states.lock:
            self.states.fetch(self.states.inputs)
            return super().profile({**self.states.inputs, **feeds}, steps, runs)

    def _computed(
        self, feeds: Mapping[str, object], out: Outs | None, slot: Slot | None = None
    ) -> dict[str, Array]:
        """Results of the compiled code by tensor names, in ``slot`` or an idle one."""
        if out is not None and (not isinstance(out, str) or self._gives_texts):
            raise InputError("out=", "nothing", "arrays", "this model's results are new each time")
        known = dict(feeds)
        for step in self._interface.steps:
            known |= performed(step, known)
        texts = self._texts.for_call()
        specs = {n: self._specs[n] for n in self._names}
        plain = {n: self._handles(spec, known[n], texts) for n, spec in specs.items()}
        if slot is None:
            results = super().run(plain, out)
        else:
            made = self._run_in(slot, tuple(plain.values()), out)
            results = dict(zip(self._results, made, strict=True))
        return {
            name: texts.texts(array) if self._specs[name].dtype == STRING else array
            for name, array in results.items()
        }

    def _is_direct(self) -> bool:
        """Whether callers pass and receive exactly the compiled code's tensors that are not states,
        in its order."""
        interface, states = self._interface, self.manifest.states.values()
        kept = {state.input for state in states} | {state.output for state in states}
        sides = (
            (self.manifest.inputs, interface.inputs),
            (self.manifest.outputs, interface.outputs),
        )
        return not interface.steps and all(
            [s.name for s in specs if s.name not in kept] == list(names.values())
            and all(self._specs[s.name].dtype != STRING for s in specs)
            for specs, names in sides
        )

    def _handles(self, spec: TensorSpec, value: object, texts: Texts) -> object:
        if spec.dtype != STRING:
            return value
        array = np.asarray(value)
        if array.dtype.kind not in "OUT":
            raise InputError(
                f"input '{spec.name}'", f"texts, {spec}", f"{array.dtype}", "give an array of str"
            )
        return texts.handles(array)


def _with_handles(manifest: Manifest) -> Manifest:
    def stored(spec: TensorSpec) -> TensorSpec:
        return replace(spec, dtype=I64) if spec.dtype == STRING else spec

    inputs, outputs = (tuple(map(stored, side)) for side in (manifest.inputs, manifest.outputs))
    return replace(manifest, inputs=inputs, outputs=outputs)


def _values_manifest(manifest: Manifest, interface: Interface) -> Manifest:
    """A manifest with the callers' names, to order arguments."""
    known = {spec.name: spec for spec in manifest.inputs}
    names = interface.inputs
    specs = tuple(known.get(name, TensorSpec(name, STRING, ())) for name in names)
    return replace(manifest, inputs=specs)


def _is_list(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, list | tuple)


def _take_apart(structure: Structure, value: object, where: str, feeds: dict[str, object]) -> None:
    """The tensors that ``value`` consists of; InputError if it does not have this structure."""
    match structure:
        case str():
            feeds[structure] = value
        case None:
            if value is not None:
                raise _misfit(where, "None", value, "compile the model with a value there")
        case tuple():
            if not _is_list(value):
                raise _misfit(where, f"a list of {len(structure)}", value, "give a list")
            if len(value) != len(structure):
                raise InputError(
                    f"input '{where}'",
                    f"a list of {len(structure)}",
                    f"one of {len(value)}",
                    "compile the model for sequences of this length",
                )
            for position, (part, item) in enumerate(zip(structure, value, strict=True)):
                _take_apart(part, item, f"{where}[{position}]", feeds)
        case Records():
            raise _misfit(where, "tensors and lists of them", value, "no model takes maps")


def _misfit(where: str, expected: str, value: object, remedy: str) -> InputError:
    return InputError(f"input '{where}'", expected, type(value).__name__, remedy)


def _put_together(structure: Structure, results: Mapping[str, Array]) -> Value:
    match structure:
        case None:
            return None
        case str():
            return results[structure]
        case Records(keys, tensor):
            return [dict(zip(keys, row, strict=True)) for row in results[tensor].tolist()]
        case tuple():
            return [_put_together(part, results) for part in structure]
