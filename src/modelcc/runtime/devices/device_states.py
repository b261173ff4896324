"""States of a session in a device's memory, where its calls change them.

The host's arrays are updated when they are read; the device's memory is updated before a call, if
the host's arrays have been set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import Lock

from modelcc.ir.types import Array
from modelcc.runtime.arguments import address_of
from modelcc.runtime.devices.device import Device, DeviceMemory
from modelcc.runtime.errors import RunError

ALIGNMENT = 256
"""Alignment of buffers on devices, in bytes."""


class DeviceStates:
    """States with ``arrays`` of the host, by the names of their inputs."""

    def __init__(self, device: Device, lock: Lock, arrays: Mapping[str, Array]) -> None:
        """Callers of :meth:`bring` have the device's ``lock``; other functions take it."""
        self._device = device
        self._lock = lock
        self._arrays = dict(arrays)
        self._starts: dict[str, int] = {}
        self._size = 0
        for name, array in arrays.items():
            self._starts[name], self._size = self._size, self._size + aligned(array.nbytes)
        self._memory: DeviceMemory | None = None
        self._brought = False
        self._behind: set[str] = set()
        self.lost = ""
        """Why a call has failed that may have changed some of them."""

    def is_at(self, name: str, address: int) -> bool:
        """Whether the input of this name, at an ``address`` of the host's, is a state's array."""
        return name in self._arrays and address_of(self._arrays[name]) == address

    def bring(self) -> dict[str, tuple[DeviceMemory, int]]:
        """Their memory on the device, for a call that may change them; OutOfDeviceMemoryError."""
        self._refuse_lost()
        memory = self._memory = self._memory or self._device.allocate(self._size + ALIGNMENT)
        for name, array in self._arrays.items():
            if array.nbytes and not self._brought:
                start = self._starts[name]
                self._device.upload(memory, start, address_of(array), array.nbytes)
        self._brought = True
        self._behind = set(self._arrays)
        return {name: (memory, start) for name, start in self._starts.items()}

    def fetch(self, names: Iterable[str]) -> None:
        """Updates the host's arrays of inputs of these ``names``."""
        with self._lock:
            if self._behind:
                self._refuse_lost()
            for name in self._behind.intersection(names):
                array, memory = self._arrays[name], self._memory
                if memory is not None and array.nbytes:
                    start = self._starts[name]
                    self._device.download(memory, start, address_of(array), array.nbytes)
                self._behind.discard(name)

    def changed(self) -> None:
        """All of the host's arrays have been set."""
        with self._lock:
            self._brought, self.lost = False, ""
            self._behind.clear()

    def _refuse_lost(self) -> None:
        if self.lost:
            raise RunError(
                f"the model's states were in the memory of {self._device.name} when a call failed "
                f"there, and are lost: reset() them, or load the model again ({self.lost})"
            )


def aligned(size: int) -> int:
    """Bytes of buffers of ``size`` bytes, with padding to the next one's start."""
    return -(-max(size, 0) // ALIGNMENT) * ALIGNMENT
