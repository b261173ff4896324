"""Calls whose arguments or results stay in the memory of the model's device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

import numpy as np

from modelcc.artifact.manifest import Manifest, TensorSpec
from modelcc.ir.types import Array
from modelcc.runtime.arguments import address_of, as_input, contiguous
from modelcc.runtime.checks import run_failure
from modelcc.runtime.devices.bound_calls import BoundCall, KnownCall, bound_call
from modelcc.runtime.devices.device import (
    DeviceMemory,
    LeavableDevice,
    OverlappingDevice,
    PointerDevice,
)
from modelcc.runtime.devices.device_arrays import (
    DeviceArray,
    DeviceTensor,
    device_tensor,
    is_in_a_gpu,
)
from modelcc.runtime.devices.device_recordings import brought_back, host_ends
from modelcc.runtime.devices.device_results import DeviceResults
from modelcc.runtime.devices.device_steps import End, Step
from modelcc.runtime.devices.dlpack_exchange import DlpackFunctions, ExchangeReader, element_kinds
from modelcc.runtime.devices.graph_replay import Places
from modelcc.runtime.devices.pending_calls import FaultReadback, PendingCall
from modelcc.runtime.errors import InputError, RunError
from modelcc.runtime.signature import Shape, Signature, size_names
from modelcc.runtime.slot import Slot, aliased_positions

_MOST_PLANS = 64
"""Shapes of inputs whose calls are cached."""


class RecordedWork(Protocol):
    """The recorded work of a model's runner."""

    def numbers(self, signature: Signature) -> tuple[int, ...] | None:
        """What identifies calls of one signature; None if they have to be synchronous.  The caller
        has the device's lock."""
        ...

    def again(
        self, device: PointerDevice, numbers: tuple[int, ...], places: Places, host: Places
    ) -> Sequence[FaultReadback] | None:
        """Issues a call with inputs and outputs at these addresses (``places``), its other inputs
        on the ``host``, and the readback of its index faults; None if it is not known.  The caller
        has the device's lock."""
        ...


@dataclass(frozen=True)
class _Read:
    """Arguments that are on the device: addresses, streams that had to be waited for, and calls
    that made them and may yet fail."""

    addresses: tuple[int, ...]
    shapes: tuple[Shape, ...]
    streams: AbstractSet[int]
    sources: Sequence[PendingCall]


class DeviceCalls:
    """Calls of a model on a device.

    ``lent`` gets the device's memory of each call, by the address of its table of inputs.  Inputs
    and outputs that the host computes with in the program's ``steps`` are transferred.
    """

    def __init__(
        self,
        manifest: Manifest,
        results: DeviceResults,
        lock: Lock,
        lent: dict[int, Mapping[End, DeviceMemory]],
        steps: Sequence[Step],
        recorded: RecordedWork,
    ) -> None:
        self._manifest = manifest
        self._device: PointerDevice = results.device
        self._leavable = self._device if isinstance(self._device, LeavableDevice) else None
        self._made = results
        self._lock = lock
        self._lent = lent
        self._over = aliased_positions(manifest)
        changed = {("input", taken) for taken in self._over.values()}
        self._host_ends, self._hosted = host_ends(steps), host_ends(steps) | changed
        self._awaited = brought_back(steps) | changed
        self._recorded = recorded
        self._reader = ExchangeReader(
            (self._device.dlpack, self._device.index), self._device.default_stream
        )
        self._types = [spec.dtype.numpy for spec in manifest.inputs]
        self._kinds = element_kinds(self._types)
        self._plans: dict[tuple[Shape, ...], KnownCall] = {}

    def overlap(self, on: bool) -> None:
        """Whether kernels start before the previous one has ended, if the device can do that."""
        if isinstance(self._device, OverlappingDevice):
            with self._lock:
                self._device.overlap = on

    def run(
        self,
        slot: Slot,
        signature_of: Callable[[tuple[Shape, ...]], Signature],
        arguments: Sequence[object],
        keep: bool,
    ) -> tuple[int, list[Array | DeviceArray]]:
        """The status and the results, which stay on the device with ``keep``."""
        waited: AbstractSet[int] = frozenset()
        if keep and (read := self._read(arguments)) is not None:
            if (again := self._again(read)) is not None:
                return 0, [*again]
            waited = read.streams
        pairs = list(zip(self._manifest.inputs, arguments, strict=True))
        given = [self._given(n, *pair) for n, pair in enumerate(pairs)]
        slot.prepare(signature := signature_of(tuple(value.shape for value in given)))
        found = [
            value if isinstance(value, DeviceTensor) else contiguous(spec, value)
            for (spec, _), value in zip(pairs, given, strict=True)
        ]
        lent: dict[End, DeviceMemory] = {
            ("input", n): v.memory for n, v in enumerate(found) if isinstance(v, DeviceTensor)
        }
        self._lent[slot.table] = lent
        try:
            if keep:
                return self._kept(slot, signature, found, lent, waited)
            slot.place_at([_address(value) for value in found])
            status, results = slot.run([_array(value) for value in found])
            return status, [*results]
        finally:
            del self._lent[slot.table]

    # --- recorded calls, on tensors whose streams are known

    def _read(self, arguments: Sequence[object]) -> _Read | None:
        """Arguments that are all the device's results, or tensors of libraries with DLPack's
        functions; None for others."""
        if self._kinds is None or self._hosted or self._manifest.allocated:
            return None
        addresses: list[int] = []
        shapes: list[Shape] = []
        exchanges: set[DlpackFunctions] = set()
        sources: list[PendingCall] = []
        with self._lock:
            for kind, dtype, value in zip(self._kinds, self._types, arguments, strict=True):
                if isinstance(value, DeviceArray):
                    address, shape = value.address_on(self._device, dtype), value.shape
                    if (source := value.source()) is not None:
                        sources.append(source)
                else:
                    exchange = self._reader.exchange(type(value))
                    found = exchange and self._reader.read(exchange, value, kind)
                    if not exchange or not found:
                        return None
                    address, shape = found
                    exchanges.add(exchange)
                if address is None:
                    return None
                addresses.append(address)
                shapes.append(shape)
            streams = {self._reader.stream(exchange) for exchange in exchanges}
        return _Read(tuple(addresses), tuple(shapes), streams, sources)

    def _again(self, read: _Read) -> list[DeviceArray] | None:
        """The results of a call whose work is recorded; streams of the arguments wait for it, this
        thread does not."""
        plan = self._plans.get(read.shapes)
        if plan is None:
            return None
        device, made = self._device, self._made
        with self._lock:
            made.late.check()
            for stream in read.streams:
                device.wait_for(stream)
            memories = [
                made.take(n, size, read.streams) for n, (_, _, size) in enumerate(plan.outputs)
            ]
            call = PendingCall(plan.failure, read.sources)
            results = [
                DeviceArray(made, n, memory, dtype, shape, read.streams, call)
                for n, (memory, (shape, dtype, _)) in enumerate(
                    zip(memories, plan.outputs, strict=True)
                )
            ]
            places = (*read.addresses, *map(device.address, memories))
            found = self._asked(plan.numbers, places, (), call, read.streams)
        return results if found else None

    def _asked(
        self,
        numbers: tuple[int, ...],
        places: Places,
        host: Places,
        call: PendingCall,
        streams: AbstractSet[int],
    ) -> bool:
        """Issues recorded work, which ``streams`` wait for; False if none is known.  The caller has
        the lock."""
        device, made = self._device, self._made
        notes = self._recorded.again(device, numbers, places, host)
        if notes is None:
            return False
        made.late.add(call, notes)
        last = notes[-1].copy if notes else device
        for stream in streams:
            last.precede(stream)
        if self._leavable is not None and self._leavable.timeout is not None:
            device.synchronize()
            made.late.settle()
            call.refuse()
        return True

    def _remember(self, found: list[Array | DeviceTensor], signature: Signature) -> None:
        """Caches a call of these shapes, to be replayed without further checks."""
        if self._kinds is None or self._hosted or self._manifest.allocated:
            return
        if len(self._plans) >= _MOST_PLANS:
            self._plans.clear()
        with self._lock:
            known = self._known(signature)
        if known is not None:
            self._plans[tuple(value.shape for value in found)] = known

    def _known(self, signature: Signature) -> KnownCall | None:
        """The cached facts of recorded calls, None if there are none."""
        numbers = self._recorded.numbers(signature)
        if numbers is None:
            return None
        sizes = dict(zip(size_names(self._manifest), signature.sizes.tolist(), strict=True))
        outputs = tuple(
            (shape, spec.dtype.numpy, _size(spec, shape))
            for spec, shape in zip(self._manifest.outputs, signature.outputs, strict=True)
        )

        def failure(status: int, index: int) -> RunError:
            return run_failure(self._manifest, status, index, sizes)

        return KnownCall(numbers, outputs, failure)

    # --- calls at addresses

    def placed(self, signature: Signature, there: AbstractSet[End]) -> BoundCall:
        """What :meth:`run_bound` needs for calls of ``signature`` with the inputs and outputs
        ``there`` on the device, and the others on the host."""
        return bound_call(self._manifest, signature, there)

    def run_bound(
        self,
        slot: Slot,
        call: BoundCall,
        inputs: Sequence[int],
        outputs: Sequence[int],
        stream: int,
    ) -> int:
        """The status of a call on memory at these addresses, on which the caller works in
        ``stream`` before and after it.  Recorded work is asynchronous."""
        places = call.places(inputs, outputs)
        with self._lock:
            self._made.late.check()
            self._device.wait_for(stream)
            if not (call.known or self._awaited & call.elsewhere or self._host_ends):
                call.known = self._known(call.signature)
            if call.known is not None:
                late = PendingCall(call.known.failure)
                host = (*inputs, *outputs)
                if self._asked(call.known.numbers, places, host, late, {stream}):
                    return 0
        return self._at_places(slot, call, places, list(inputs), list(outputs))

    def _at_places(
        self,
        slot: Slot,
        call: BoundCall,
        places: Places,
        inputs: list[int],
        outputs: list[int],
    ) -> int:
        """The status of a synchronous call; what the host computes with is transferred."""
        lent: dict[End, DeviceMemory] = {}
        changed: list[tuple[Array, DeviceMemory]] = []
        with self._lock:
            memories = [
                self._device.foreign(places[position], size, f"{kind} {number}")
                for position, (kind, number), size in call.ends
            ]
        for memory, (_, (kind, number), size) in zip(memories, call.ends, strict=True):
            if (kind, number) not in self._host_ends:
                lent[kind, number] = memory
                continue
            array: Array = np.empty(size, np.uint8)
            if kind == "input":
                self._made.fetch(memory, array)
            if kind == "output" or number in self._over.values():
                changed.append((array, memory))
            (inputs if kind == "input" else outputs)[number] = address_of(array)
        slot.prepare(call.signature)
        self._lent[slot.table] = lent
        try:
            status = slot.run_at(inputs, outputs)
        finally:
            del self._lent[slot.table]
        with self._lock:
            for array, memory in changed:
                self._device.upload(memory, 0, address_of(array), array.nbytes)
            if changed:
                self._device.synchronize()
        return status

    # --- all other calls

    def _given(self, number: int, spec: TensorSpec, value: object) -> Array | DeviceTensor:
        if not is_in_a_gpu(value):
            return as_input(spec, value)
        if isinstance(value, DeviceArray):
            value.complete_for(self._device)
        with self._lock:  # waits for other streams must not be recorded
            tensor = device_tensor(self._device, spec, value)
        if ("input", number) not in self._hosted:
            return tensor
        array: Array = np.empty(tensor.shape, spec.dtype.numpy)
        self._made.fetch(tensor.memory, array)
        return array

    def _kept(
        self,
        slot: Slot,
        signature: Signature,
        found: list[Array | DeviceTensor],
        lent: dict[End, DeviceMemory],
        waited: AbstractSet[int],
    ) -> tuple[int, list[Array | DeviceArray]]:
        """A call with its results in memory of their own on the device, except states."""
        if self._manifest.allocated:
            raise InputError("out=", "outputs whose shapes are known before the call",
                             "some that depend on data", "call the model without out=")  # fmt: skip
        kept = {n for n, spec in enumerate(self._manifest.inputs) if spec.name in slot.kept}
        for taken in set(self._over.values()) - kept:
            found[taken] = _array(found[taken]).copy()
        results: list[Array | DeviceArray] = []
        addresses: list[int] = []
        hosted: list[tuple[Array, DeviceMemory]] = []
        for number, (spec, shape) in enumerate(
            zip(self._manifest.outputs, signature.outputs, strict=True)
        ):
            if number in self._over:
                results.append(_array(found[self._over[number]]))
                addresses.append(_address(found[self._over[number]]))
                continue
            with self._lock:
                memory = self._made.take(number, _size(spec, shape), waited)
            results.append(DeviceArray(self._made, number, memory, spec.dtype.numpy, shape))
            if ("output", number) in self._hosted:
                hosted.append((np.empty(shape, spec.dtype.numpy), memory))
                addresses.append(address_of(hosted[-1][0]))
            else:
                lent["output", number] = memory
                addresses.append(self._device.address(memory))
        status = slot.run_at([_address(value) for value in found], addresses)
        with self._lock:
            for array, memory in hosted:
                self._device.upload(memory, 0, address_of(array), array.nbytes)
            if hosted:
                self._device.synchronize()
        if not status:
            self._remember(found, signature)
        return status, results


def _size(spec: TensorSpec, shape: Shape) -> int:
    return max(1, spec.dtype.numpy.itemsize * int(np.prod(shape)))


def _address(value: Array | DeviceTensor) -> int:
    return value.address if isinstance(value, DeviceTensor) else address_of(value)


def _array(value: Array | DeviceTensor) -> Array:
    """The array, if it is on the host; else an empty one, which nothing there reads."""
    return np.empty(0) if isinstance(value, DeviceTensor) else value
