"""Per-call state of a compiled model: address tables and an arena."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from modelcc.artifact.manifest import Manifest
from modelcc.artifact.memory import Memory
from modelcc.ir.index import compile_shapes
from modelcc.ir.types import Array, NumpyType
from modelcc.runtime.arguments import address_of
from modelcc.runtime.errors import OutOfMemoryError
from modelcc.runtime.host import Host
from modelcc.runtime.results import LARGE, ResultMemory
from modelcc.runtime.signature import Signature, size_names

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32)
"""The C type of a compiled entry point, see :mod:`modelcc.artifact.manifest`.

It declares no parameters: the pointer that :data:`pointer` builds from an address once is passed
unchanged.
"""

pointer = ctypes.c_void_p.from_param

Entry = Callable[..., int]

_number = ctypes.c_int64.from_address
_HEAD = object.__basicsize__
_Array, _empty = np.ndarray, np.empty  # module lookups are noticeable for small models

_DYNAMIC, _ALIASED = -1, -2
"""Instead of the bytes of a result that the host allocates, or that aliases an input."""
_NOTHING: Array = np.empty(0, np.uint8)
"""Placeholder for such a result before the call."""


@dataclass(frozen=True)
class LoadedCode:
    """Loaded code: the entry point and the addresses common to all calls."""

    manifest: Manifest
    entry: Entry
    constants: int
    pool: int


_Ready = tuple[
    list[tuple[int, int, NumpyType, tuple[int, ...], int]],
    ctypes.Array[ctypes.c_int64],
    list[tuple[int, tuple[int, ...], NumpyType, int]],
    ctypes.Array[ctypes.c_int64],
    Callable[[], int],
]


class Slot:
    """Runs one call at a time.  Prepared for one signature; another one requires preparation."""

    def __init__(self, model: LoadedCode, kept: Mapping[str, Array] | None = None) -> None:
        """``kept`` are inputs that are always these arrays, which calls mutate."""
        self._model = model
        self.kept = {} if kept is None else kept
        manifest = model.manifest
        self._inputs = (ctypes.c_int64 * max(1, len(manifest.inputs)))()
        self._outputs = (ctypes.c_int64 * max(1, len(manifest.outputs)))()
        self._arena = self._own = Memory(0)
        self._results: list[tuple[tuple[int, ...], NumpyType, int]] = []
        self._memory = [ResultMemory() for _ in manifest.outputs]
        self._signature: Signature | None = None
        self._host = Host(len(manifest.allocated)) if manifest.allocated else None
        self._dynamic = {
            position: manifest.allocated.index(spec.name)
            for position, spec in enumerate(manifest.outputs)
            if spec.name in manifest.allocated
        }
        self._names = size_names(manifest)
        self._over = aliased_positions(manifest)
        dynamic = [manifest.outputs[position].shape for position in self._dynamic]
        self._dynamic_shapes = compile_shapes(dynamic, self._names)
        self._call: Callable[[], int] = lambda: 1
        self._ready: _Ready | None = None

    def prepare(self, signature: Signature, arena: Memory | None = None) -> None:
        """Prepares for calls of ``signature``, in the caller's ``arena`` or in its own."""
        if signature is self._signature and (arena or self._own) is self._arena:
            return
        model, manifest = self._model, self._model.manifest
        self._signature = self._ready = None
        if arena is None and signature.arena > self._own.size:
            self._own = Memory(signature.arena)
        self._arena = arena or self._own
        self._results = [
            (shape, spec.dtype.numpy, self._result_size(i, shape, spec.dtype.numpy))
            for i, (spec, shape) in enumerate(zip(manifest.outputs, signature.outputs, strict=True))
        ]
        self._sizes = signature.sizes.copy() if manifest.sizes else signature.sizes
        addresses = (
            ctypes.addressof(self._inputs),
            ctypes.addressof(self._outputs),
            model.constants,
            self._arena.address,
            address_of(self._sizes),
            model.pool,
            *(() if self._host is None else (self._host.address,)),
        )
        self._call = partial(model.entry, *map(pointer, addresses))
        given = [i for i, spec in enumerate(manifest.inputs) if spec.name not in self.kept]
        types = [spec.dtype.numpy for spec in manifest.inputs]
        checks = [
            (argument, i, types[i], signature.inputs[i], types[i].itemsize)
            for argument, i in enumerate(given)
        ]
        makes = [
            (i, *result)
            for i, result in enumerate(self._results)
            if manifest.aliases.get(manifest.outputs[i].name) not in self.kept
        ]
        self._signature = signature
        self._ready = (checks, self._inputs, makes, self._outputs, self._call)

    def _result_size(self, position: int, shape: tuple[int, ...], dtype: NumpyType) -> int:
        size = _nbytes(shape, dtype)
        known = _DYNAMIC if position in self._dynamic else size
        return _ALIASED if position in self._over else known

    def at_once(self, arguments: Sequence[object]) -> list[Array] | None:
        """The results for arrays of the prepared signature, in a single pass over all memory that a
        call touches: the weights have just evicted it from the caches.  Arguments and results are
        those that are not kept.

        None, for whatever reason, makes the caller take the slow path, which reports the reason.
        """
        if self._ready is None:
            return None
        checks, inputs, makes, outputs, call = self._ready
        for argument, position, dtype, shape, itemsize in checks:
            value = arguments[argument]
            if type(value) is not _Array or value.shape != shape:
                return None
            if value.dtype is not dtype and value.dtype != dtype:  # unpickled ones are never `is`
                return None
            address = _number(id(value) + _HEAD).value  # as address_of
            if address % itemsize or not value.flags.c_contiguous:
                return None
            inputs[position] = address
        results: list[Array] = []
        for position, shape, dtype, size in makes:
            if size < 0:
                aliased = size == _ALIASED
                results.append(self._copied(position, arguments) if aliased else _NOTHING)
                continue
            if size >= LARGE:
                array = self._memory[position].array(shape, dtype, size)
            else:
                array = _empty(shape, dtype)
            outputs[position] = _number(id(array) + _HEAD).value
            results.append(array)
        if self._host is None:
            return None if call() else results
        return None if self._run_hosted(self._host, results) else results

    def place(self, arrays: list[Array]) -> None:
        """Stores the addresses of input ``arrays``, which fit the signature."""
        for position, array in enumerate(arrays):
            self._inputs[position] = address_of(array)

    @property
    def table(self) -> int:
        """Address of the table of inputs, the same in each of its calls."""
        return ctypes.addressof(self._inputs)

    def place_at(self, addresses: Sequence[int]) -> None:
        """Stores the addresses of inputs, which fit the signature."""
        self._inputs[: len(addresses)] = addresses

    def sizes(self) -> dict[str, int]:
        """The last call's data-dependent sizes, and its dimensions."""
        return dict(zip(self._names, self._sizes.tolist(), strict=True))

    def index(self) -> int:
        """The index that made the last call fail, if one did."""
        return _number(self._arena.address).value

    def run(self, arrays: list[Array]) -> tuple[int, list[Array]]:
        """The entry point's status and the results for ``arrays`` that have been placed, in
        exclusively owned arrays; kept ones are among them, updated."""
        results = [
            self._updated(position, arrays) if given[2] == _ALIASED else _result(memory, *given)
            for position, (memory, given) in enumerate(
                zip(self._memory, self._results, strict=True)
            )
        ]
        self._point_to(results)
        if self._host is None:
            return self._call(), results
        return self._run_hosted(self._host, results), results

    def _updated(self, position: int, arguments: Sequence[Any]) -> Array:
        """The result that aliases an input: the input itself if kept, else a copy to work on."""
        taken = self._over[position]
        if self._model.manifest.inputs[taken].name not in self.kept:
            return self._copied(position, arguments)
        value: Array = arguments[taken]
        return value

    def _copied(self, position: int, arguments: Sequence[Any]) -> Array:
        taken = self._over[position]
        result: Array = arguments[taken].copy()
        self._inputs[taken] = address_of(result)
        return result

    def run_at(self, inputs: list[int], outputs: list[int]) -> int:
        """The entry point's status, on memory at these addresses, which fit the signature.  An
        output that aliases an input has no address of its own."""
        self._inputs[: len(inputs)] = inputs
        self._outputs[: len(outputs)] = outputs
        return self._call()

    def _run_hosted(self, host: Host, results: list[Array]) -> int:
        """The status; ``results`` receives the arrays allocated by the host."""
        try:
            status = self._call()
            if not status:
                shapes = self._dynamic_shapes(self._sizes.tolist())
                for (position, which), shape in zip(self._dynamic.items(), shapes, strict=True):
                    results[position] = host.take(which, self._results[position][1], shape)
        finally:
            host.clear()
        return status

    def run_into(self, results: list[Array], arrays: list[Array]) -> tuple[int, list[Array]]:
        """As :meth:`run`, with the results written into these arrays."""
        self._point_to(results)
        for position, taken in self._over.items():
            np.copyto(results[position], arrays[taken])
            self._inputs[taken] = address_of(results[position])
        return self._call(), results

    def _point_to(self, results: list[Array]) -> None:
        table = self._outputs
        for position, array in enumerate(results):
            table[position] = address_of(array)


def aliased_positions(manifest: Manifest) -> dict[int, int]:
    """Outputs by number, with the numbers of the inputs that they alias."""
    inputs = {spec.name: position for position, spec in enumerate(manifest.inputs)}
    return {
        position: inputs[manifest.aliases[spec.name]]
        for position, spec in enumerate(manifest.outputs)
        if spec.name in manifest.aliases
    }


def _result(memory: ResultMemory, shape: tuple[int, ...], dtype: NumpyType, size: int) -> Array:
    if size == _DYNAMIC:
        return _NOTHING
    return memory.array(shape, dtype, size) if size >= LARGE else np.empty(shape, dtype)


def _nbytes(shape: tuple[int, ...], dtype: NumpyType) -> int:
    """Bytes of an array; OutOfMemoryError if no array of that shape can exist, even without
    elements."""
    size, room = dtype.itemsize, dtype.itemsize
    for extent in shape:
        size *= extent
        room *= extent or 1
    if room > sys.maxsize:
        raise OutOfMemoryError(f"the system has no room for a result of shape {shape}")
    return size
