"""Running a compiled model."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from modelcc.artifact.constants import Block, block_size, constant_bytes
from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import Manifest
from modelcc.artifact.memory import Memory
from modelcc.ir.types import Array
from modelcc.runtime.arguments import (
    as_input,
    check_output,
    contiguous,
    ordered,
    overlap,
    with_names,
)
from modelcc.runtime.checks import run_failure
from modelcc.runtime.devices.bound_calls import BoundCall
from modelcc.runtime.devices.device_arrays import is_in_a_gpu
from modelcc.runtime.devices.device_calls import DeviceCalls
from modelcc.runtime.devices.device_steps import End
from modelcc.runtime.errors import InputError, RunError
from modelcc.runtime.linking.libraries import addresses
from modelcc.runtime.loader import NativeCode, load_objects
from modelcc.runtime.machine import check_machine
from modelcc.runtime.pool import ThreadPool, native_pool, shared_pool
from modelcc.runtime.signature import Signature, SignatureMaker
from modelcc.runtime.slot import ENTRY, Entry, LoadedCode, Slot

_PARALLEL_FOR = "mcc_parallel_for"
_POOL_CREATE = b"mcc_pool_create"
_SIGNATURES = 1024  # cached shapes; a growing sequence would otherwise fill memory

Outs = Array | Sequence[Array] | Mapping[str, Array] | Literal["device"]


NamedOuts = Mapping[str, Array] | Literal["device"]


class Session:
    """A compiled model in memory.

    Call it like a function, or :meth:`run` it by name.  Several threads may do so at the same
    time: each call has its own arena, and the weights are shared.
    """

    def __init__(
        self, artifact: Artifact, threads: int = 1, code: NativeCode | None = None
    ) -> None:
        """Loads ``artifact``, to run on ``threads`` threads; with one, in the calling thread.

        ``code`` replaces its own: an entry point that forwards the call to an emulator or a device.
        Raises LoadError if the artifact's code is used and not for this machine.
        """
        self.manifest: Manifest = artifact.manifest
        if code is None:
            check_machine(self.manifest.machine)
        self._code = _linked(artifact) if code is None else code
        self._constants, self._table = _placed(artifact)
        self._pool = pool = _pool(artifact, self._code, threads) if code is None else None
        self._model = LoadedCode(
            self.manifest,
            self._entry(self.manifest.entry),
            ctypes.addressof(self._table),
            0 if pool is None else pool.address,
        )
        self._maker = SignatureMaker(self.manifest)
        self._signatures: dict[tuple[tuple[int, ...], ...], Signature] = {}
        self._order = tuple(spec.name for spec in self.manifest.inputs)
        self._names = dict.fromkeys(self._order).keys()
        self._results = tuple(spec.name for spec in self.manifest.outputs)
        self._inputs = len(self.manifest.inputs)
        self._idle: list[Slot] = []

    def __repr__(self) -> str:
        inputs = ", ".join(f"{spec.name}: {spec}" for spec in self.manifest.inputs)
        outputs = ", ".join(f"{spec.name}: {spec}" for spec in self.manifest.outputs)
        return f"<Session {self.manifest.name}({inputs}) -> ({outputs})>"

    def __call__(self, *arguments: object, out: Outs | None = None, **named: object) -> Any:
        """The model's output, or a tuple of its outputs.

        Inputs are positional, by keyword, or one dict; NumPy arrays or objects with
        ``__dlpack__``, and are not copied if they are contiguous.  Results are new arrays, unless
        ``out`` (an array, a sequence, or a dict by output name) gives arrays to write into, or is
        ``"device"``: results stay in the GPU's memory, as :class:`DeviceArray`.
        InputError says what does not fit.
        """
        if out is None and not named and len(arguments) == self._inputs:
            results = self._at_once(arguments)
            if results is not None:
                return results[0] if len(results) == 1 else tuple(results)
        given, by_name = with_names(arguments, named)
        if by_name or len(given) != self._inputs:
            given = ordered(self.manifest, given, by_name)
        results = self._run(given, out)
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, feeds: Mapping[str, object], out: NamedOuts | None = None) -> dict[str, Any]:
        """Outputs by name, for inputs by name; otherwise as a call."""
        if out is None and len(feeds) == self._inputs:
            results = self._at_once(tuple(map(feeds.get, self._order)))
            if results is not None:
                return dict(zip(self._results, results, strict=True))
        arguments = ordered(self.manifest, (), feeds)
        return dict(zip(self._results, self._run(arguments, out), strict=True))

    def profile(
        self, feeds: Mapping[str, object], steps: int, runs: int = 20
    ) -> NDArray[np.float64]:
        """Seconds of each of the program's ``steps``, of shape (runs, steps).

        Calls must not overlap.  RunError if the model was compiled without a profiled entry.
        """
        entry = self.manifest.entry
        if f"{entry}.profile" not in self._code.names:
            raise RunError(f"{self.manifest.name} has no profiled entry point; compile it again")
        slot = Slot(replace(self._model, entry=self._entry(f"{entry}.profile")))
        arguments = ordered(self.manifest, (), feeds)
        found: list[NDArray[np.float64]] = []
        for _ in range(runs + 1):  # the first is a warm-up
            self._run_any(slot, arguments, None)
            found.append(np.diff(self._step_times(f"{entry}.times", steps)))
        return np.array(found[1:])

    def limit(self, seconds: float | None) -> None:
        """Calls longer than ``seconds`` end with TookTooLongError (None: no limit); InputError
        if the execution cannot be abandoned."""
        self._code.limit(seconds)

    def overlap(self, on: bool) -> None:
        """Whether kernels may start before their predecessor has ended, on devices that support it,
        in subsequent recordings."""
        if self._code.calls is not None:
            self._code.calls.overlap(on)

    def signature(self, shapes: tuple[tuple[int, ...], ...]) -> Signature:
        """The argument of :meth:`run_at` for inputs of these ``shapes``; InputError if they do not
        fit."""
        return self._signature(shapes)

    def run_at(
        self, signature: Signature, inputs: list[int], outputs: list[int], arena: Memory
    ) -> None:
        """Runs on memory at these addresses, in the order of inputs and outputs, and in an
        ``arena`` of the signature's size that is not used otherwise meanwhile.

        For callers whose arrays are known to have the signature's shapes, to be row-major, aligned
        to an element and disjoint, except that the output of a state is at its input's address; an
        input without elements, or one that only defines a size, may be anywhere.  No output's shape
        may depend on data.
        """
        try:
            slot = self._idle.pop()
        except IndexError:
            slot = Slot(self._model)
        try:
            slot.prepare(signature, arena)
            status = slot.run_at(inputs, outputs)
            failure = self._failure(status, slot) if status else None
        finally:
            self._idle.append(slot)
        if failure is not None:
            raise failure

    def placed(self, signature: Signature, there: AbstractSet[End]) -> BoundCall:
        """The argument of :meth:`run_bound` for calls of ``signature`` with the inputs and outputs
        ``there``, by number, in GPU memory; InputError if the model does not run on a GPU."""
        return self._gpu_calls("an address").placed(signature, there)

    def run_bound(
        self, call: BoundCall, inputs: Sequence[int], outputs: Sequence[int], stream: int
    ) -> None:
        """As :meth:`run_at`, where ``call`` says which addresses are in GPU memory.

        The call is ordered after previous work of ``stream``, and before its subsequent work.  It
        may return before the GPU is done; a later call then raises the error.
        """
        calls = self._gpu_calls("an address")
        try:
            slot = self._idle.pop()
        except IndexError:
            slot = Slot(self._model)
        try:
            status = calls.run_bound(slot, call, inputs, outputs, stream)
            failure = self._failure(status, slot) if status else None
        finally:
            self._idle.append(slot)
        if failure is not None:
            raise failure

    def _gpu_calls(self, given: str) -> DeviceCalls:
        if self._code.calls is None:
            raise InputError(
                given,
                "arrays in this machine's memory",
                "a GPU's memory",
                "compile the model with target='cuda' or 'amdgpu', or use NumPy arrays",
            )
        return self._code.calls

    def _entry(self, name: str) -> Entry:
        entry: Entry = ENTRY(self._code.address(name))
        return entry

    def _step_times(self, symbol: str, steps: int) -> NDArray[np.float64]:
        """Clock readings in seconds before each step and after the last."""
        values = (ctypes.c_int64 * (2 * (steps + 1))).from_address(self._code.address(symbol))
        stamps = np.array(values[:], np.float64).reshape(-1, 2)
        return (stamps[:, 0] - stamps[0, 0]) + stamps[:, 1] * 1e-9

    def arena_size(self, *shapes: tuple[int, ...]) -> int:
        """Bytes of scratch memory of a call with inputs of these shapes."""
        return self._signature(shapes).arena

    def _at_once(self, arguments: tuple[object, ...]) -> list[Array] | None:
        """The results, if a slot is prepared for exactly these arguments."""
        try:
            slot = self._idle.pop()
        except IndexError:
            return None
        try:
            results = slot.at_once(arguments)
        finally:
            self._idle.append(slot)
        if results is None:
            self._raise_failure()
        return results

    def _raise_failure(self) -> None:
        """Raises the failure of a run on a device, if any: it is not retried."""
        ended = self._code.take_failure()
        if ended is not None:
            raise ended

    def _run(self, arguments: tuple[object, ...], out: Outs | None) -> list[Any]:
        try:
            slot = self._idle.pop()
        except IndexError:
            slot = Slot(self._model)
        try:
            return self._run_in(slot, arguments, out)
        finally:
            self._idle.append(slot)

    def _run_in(self, slot: Slot, arguments: tuple[object, ...], out: Outs | None) -> list[Any]:
        status, results = self._run_any(slot, arguments, out)
        if status:
            raise self._failure(status, slot)
        return results

    def _failure(self, status: int, slot: Slot) -> RunError:
        self._raise_failure()
        sizes = slot.sizes() if status > 0 else {}
        return run_failure(self.manifest, status, slot.index(), sizes)

    def _run_any(
        self, slot: Slot, arguments: tuple[object, ...], out: Outs | None
    ) -> tuple[int, list[Any]]:
        keep = isinstance(out, str) and out == "device"
        if keep or any(map(is_in_a_gpu, arguments)):
            return self._run_on_device(slot, arguments, keep, out)
        arrays = [as_input(s, v) for s, v in zip(self.manifest.inputs, arguments, strict=True)]
        signature = self._signature(tuple(array.shape for array in arrays))
        arrays = [contiguous(s, a) for s, a in zip(self.manifest.inputs, arrays, strict=True)]
        slot.prepare(signature)
        if out is None:
            slot.place(arrays)
            return slot.run(arrays)
        if self.manifest.allocated:
            raise InputError(
                "out=",
                "outputs whose shapes are known before the call",
                "some that depend on data",
                "call the model without out=",
            )
        outs = self._outs(out, signature)
        for position, array in enumerate(arrays):
            if any(overlap(array, target) for target in outs):
                arrays[position] = array.copy()
        slot.place(arrays)
        return slot.run_into(outs, arrays)

    def _run_on_device(
        self, slot: Slot, arguments: tuple[object, ...], keep: bool, out: Outs | None
    ) -> tuple[int, list[Any]]:
        calls = self._gpu_calls("out=" if keep else "an input")
        if not (keep or out is None):
            remedy = "leave it out, or give out='device'"
            raise InputError("out=", "nothing, for inputs on a GPU", "arrays", remedy)
        return calls.run(slot, self._signature, arguments, keep)

    def _signature(self, shapes: tuple[tuple[int, ...], ...]) -> Signature:
        found = self._signatures.get(shapes)
        if found is None:
            found = self._maker.signature(shapes)
            if len(self._signatures) >= _SIGNATURES:
                self._signatures = {}
            self._signatures[shapes] = found
        return found

    def _outs(self, out: Outs, signature: Signature) -> list[Array]:
        """The arrays to write into: the given ones, new ones for omitted outputs."""
        given = _by_position(self.manifest, out)
        outs: list[Array] = []
        for position, (spec, shape) in enumerate(
            zip(self.manifest.outputs, signature.outputs, strict=True)
        ):
            array = given.get(position)
            outs.append(
                np.empty(shape, spec.dtype.numpy)
                if array is None
                else check_output(spec, shape, array)
            )
        _check_apart(self.manifest, outs)
        return outs


def _check_apart(manifest: Manifest, outs: Sequence[Array]) -> None:
    for (i, a), (j, b) in combinations(enumerate(outs), 2):
        if overlap(a, b):
            raise InputError(
                f"output '{manifest.outputs[j].name}'",
                "memory of its own",
                f"memory that output '{manifest.outputs[i].name}' uses",
                "give separate arrays",
            )


def _by_position(manifest: Manifest, out: Outs) -> Mapping[int, object]:
    if not _gives_arrays(out):
        expected = "an array, a sequence of them, a dict by output name, or 'device'"
        raise InputError("out=", expected, type(out).__name__, "give NumPy arrays")
    arrays: list[object] = [out] if isinstance(out, np.ndarray) else list(out)
    names = [spec.name for spec in manifest.outputs]
    if isinstance(out, Mapping):
        unknown = [name for name in out if name not in names]
        if unknown:
            expected = f"names of outputs ({', '.join(names)})"
            raise InputError("out=", expected, f"'{unknown[0]}'", "check the name")
        return {names.index(name): array for name, array in out.items()}
    if len(arrays) != len(names):
        expected = f"{len(names)} arrays ({', '.join(names)})"
        raise InputError("out=", expected, f"{len(arrays)}", "give one array for each output")
    return dict(enumerate(arrays))


def _gives_arrays(out: object) -> bool:
    return isinstance(out, np.ndarray | Sequence | Mapping) and not isinstance(out, str | bytes)


def _linked(artifact: Artifact) -> NativeCode:
    objects = [artifact.objects[name] for name in artifact.manifest.objects]
    return load_objects(objects, addresses(artifact.manifest.libraries), _pool_function)


def _pool(artifact: Artifact, code: NativeCode, threads: int) -> ThreadPool | None:
    """Threads for code with parallel loops; most such artifacts include their pool."""
    parallel = [o for o in artifact.objects.values() if _PARALLEL_FOR.encode() in o]
    if threads == 1 or (threads > 1 and not parallel):
        return None
    own = next((o for o in parallel if _POOL_CREATE in o), b"")
    return shared_pool(threads, code if own else None, own)


def _pool_function(name: str) -> int:
    """For code that does not include its thread pool."""
    return native_pool().address(name) if name == _PARALLEL_FOR else 0


def _placed(artifact: Artifact) -> tuple[Block, ctypes.Array[ctypes.c_int64]]:
    """The constants in one block of memory, and their addresses."""
    specs = artifact.manifest.constants
    block = artifact.block or _copied(artifact)
    table = (ctypes.c_int64 * max(1, len(specs)))()
    for position, spec in enumerate(specs):
        table[position] = block.address + spec.offset
    return block, table


def _copied(artifact: Artifact) -> Memory:
    specs = artifact.manifest.constants
    memory = Memory(block_size(specs))
    target = np.frombuffer(memory.view, np.uint8) if memory.size else np.empty(0, np.uint8)
    for spec in specs:
        data = constant_bytes(artifact.constants[spec.name])
        target[spec.offset : spec.offset + spec.size] = data
    return memory
