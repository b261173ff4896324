"""Results that stay on a device: their memory, streams that wait for them, and copies on the host.

Memory is reused once the caller has released it, so that a call finds its results at the addresses
of earlier calls, for which work is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from threading import Lock

from modelcc.ir.types import Array
from modelcc.runtime.arguments import address_of
from modelcc.runtime.devices.device import DeviceMemory, PointerDevice
from modelcc.runtime.devices.pending_calls import PendingCall, PendingCalls

_KEPT = 2
"""Spare buffers of an output: the caller often holds one result while the next is computed."""


class DeviceResults:
    """Results by the numbers of outputs; ``lock`` is held by whoever uses ``device``."""

    def __init__(self, device: PointerDevice, lock: Lock, outputs: int) -> None:
        self.device = device
        self._lock = lock
        self._free: Sequence[list[DeviceMemory]] = [[] for _ in range(outputs)]
        self._held: dict[int, DeviceMemory] = {}
        self.late = PendingCalls(device)

    def take(self, number: int, size: int, waited: AbstractSet[int]) -> DeviceMemory:
        """Memory of ``size`` bytes that is unused except by streams that are ``waited`` for;
        OutOfDeviceMemoryError.  The caller has the lock."""
        free = self._free[number]
        while free:
            memory = free.pop()
            users = self.device.users(memory)
            if memory.size == size and users <= waited:
                users.clear()
                return memory
        return self.device.allocate(size)

    def hold(self, memory: DeviceMemory) -> None:
        """Keeps memory that a result refers to: Python finalises all objects of a cycle before it
        knows which are passed on, and memory that only the result refers to would be lost."""
        self._held[id(memory)] = memory

    def give(self, number: int, memory: DeviceMemory) -> None:
        """The caller has released it, but streams that it is shared with may still work there."""
        self._held.pop(id(memory), None)
        free = self._free[number]
        if len(free) < _KEPT:
            free.append(memory)

    def clear(self) -> None:
        """Frees all unused memory."""
        for free in self._free:
            free.clear()

    def fetch(self, memory: DeviceMemory, array: Array, made: PendingCall | None = None) -> None:
        """Copies the beginning of ``memory`` to ``array``; RunError if the call that ``made`` it
        has failed."""
        with self._lock:
            if made is not None:
                made.refuse()
            if array.nbytes:
                self.device.download(memory, 0, address_of(array), array.nbytes)
            if made is not None:
                self._end(made)

    def hand_over(self, memory: DeviceMemory, stream: int, waits: bool) -> None:
        """Another library's ``stream`` uses the memory from now on; unless it ``waits`` already,
        after all work issued so far."""
        if stream == self.device.stream:
            return
        self.device.share(memory, stream)
        if not waits:
            with self._lock:
                self.device.precede(stream)

    def finish(self, made: PendingCall | None, earlier: bool = False) -> None:
        """Waits for all issued work; RunError if the call that ``made`` a result has failed, which
        is an ``earlier`` one if the result is for another."""
        with self._lock:
            if made is not None:
                made.refuse(earlier)
            self.device.synchronize()
            if made is not None:
                self._end(made, earlier)

    def _end(self, made: PendingCall, earlier: bool = False) -> None:
        """Finds the outcome of a call; RunError if it has failed."""
        self.late.settle()
        if not made.ended:
            self.device.synchronize()
            self.late.settle()
        made.refuse(earlier)
