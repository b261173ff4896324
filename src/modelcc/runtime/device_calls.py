"""Calls whose arguments or results stay in the memory of the model's device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import numpy as np

from modelcc.artifact.manifest import Manifest, TensorSpec
from modelcc.ir.types import Array
from modelcc.runtime.arguments import address_of, as_input, contiguous
from modelcc.runtime.device import DeviceMemory, OverlappingDevice, PointerDevice
from modelcc.runtime.device_arrays import (
    DeviceArray,
    DeviceTensor,
    device_tensor,
    is_in_a_gpu,
)
from modelcc.runtime.device_steps import End
from modelcc.runtime.errors import InputError
from modelcc.runtime.signature import Shape, Signature
from modelcc.runtime.slot import Slot, aliased_positions


class DeviceCalls:
    """Those of a model on ``device``.

    ``lent`` gets the device's memory of each call, by the address of its table of inputs.
    ``host_ends`` are inputs and outputs that the host computes with: these are brought over.
    """

    def __init__(
        self,
        manifest: Manifest,
        device: PointerDevice,
        lock: Lock,
        lent: dict[int, Mapping[End, DeviceMemory]],
        host_ends: frozenset[End],
    ) -> None:
        self._manifest = manifest
        self._device = device
        self._lock = lock
        self._lent = lent
        self._over = aliased_positions(manifest)
        changed = {("input", taken) for taken in self._over.values()}
        self._hosted = host_ends | changed

    def overlap(self, on: bool) -> None:
        """Whether kernels begin before the one before has ended, if the device can do that."""
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
        """The status and the results, which with ``keep`` are on the device."""
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
                return self._kept(slot, signature, found, lent)
            slot.place_at([_address(value) for value in found])
            status, results = slot.run([_array(value) for value in found])
            return status, [*results]
        finally:
            del self._lent[slot.table]

    def _given(self, number: int, spec: TensorSpec, value: object) -> Array | DeviceTensor:
        if not is_in_a_gpu(value):
            return as_input(spec, value)
        with self._lock:  # waits for others are for no recording
            tensor = device_tensor(self._device, spec, value)
        if ("input", number) not in self._hosted:
            return tensor
        array: Array = np.empty(tensor.shape, spec.dtype.numpy)
        self.fetch(tensor.memory, array)
        return array

    def _kept(
        self,
        slot: Slot,
        signature: Signature,
        found: list[Array | DeviceTensor],
        lent: dict[End, DeviceMemory],
    ) -> tuple[int, list[Array | DeviceArray]]:
        """A call with its results in memory of their own on the device, but for states."""
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
            made, memory = self._made(spec, shape)
            results.append(made)
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
            self._device.synchronize()
        return status, results

    def _made(self, spec: TensorSpec, shape: Shape) -> tuple[DeviceArray, DeviceMemory]:
        dtype = spec.dtype.numpy
        with self._lock:
            memory = self._device.allocate(max(1, dtype.itemsize * int(np.prod(shape))))
        return DeviceArray(self._device, memory, dtype, shape, self.fetch), memory

    def fetch(self, memory: DeviceMemory, array: Array) -> None:
        """Copy what ``memory`` begins with to ``array``."""
        if array.nbytes:
            with self._lock:
                self._device.download(memory, 0, address_of(array), array.nbytes)


def _address(value: Array | DeviceTensor) -> int:
    return value.address if isinstance(value, DeviceTensor) else address_of(value)


def _array(value: Array | DeviceTensor) -> Array:
    """What is on the host; nothing for what is not, which nobody there looks at."""
    return np.empty(0) if isinstance(value, DeviceTensor) else value
