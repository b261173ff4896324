"""Results that stay on a device: their memory, who waits for them, and copies on the host.

Memory is used again once the caller has let go of it, so that a call finds its results where those
of earlier calls were, for which work is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from threading import Lock

from modelcc.ir.types import Array
from modelcc.runtime.arguments import address_of
from modelcc.runtime.device import DeviceMemory, PointerDevice
from modelcc.runtime.pending_calls import PendingCall, PendingCalls

_KEPT = 2
"""Pieces of an output: the caller often holds one result while the next is computed."""


class DeviceResults:
    """Those of a model's outputs, by their numbers; ``lock`` is held by whoever uses ``device``."""

    def __init__(self, device: PointerDevice, lock: Lock, outputs: int) -> None:
        self.device = device
        self._lock = lock
        self._free: Sequence[list[DeviceMemory]] = [[] for _ in range(outputs)]
        self._held: dict[int, DeviceMemory] = {}
        self.late = PendingCalls(device)

    def take(self, number: int, size: int, waited: AbstractSet[int]) -> DeviceMemory:
        """Memory of ``size`` bytes that nobody uses but streams that are ``waited`` for;
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
        """The caller has it.  Python ends all objects of a cycle that nobody has before it looks
        which of them are given on: memory that only its result refers to would go with that."""
        self._held[id(memory)] = memory

    def give(self, number: int, memory: DeviceMemory) -> None:
        """Nobody has it any more, but streams that it is shared with may still work there."""
        self._held.pop(id(memory), None)
        free = self._free[number]
        if len(free) < _KEPT:
            free.append(memory)

    def clear(self) -> None:
        """Give all that is not used back to the device."""
        for free in self._free:
            free.clear()

    def fetch(self, memory: DeviceMemory, array: Array, made: PendingCall | None = None) -> None:
        """Copy what ``memory`` begins with to ``array``; RunError if the call that ``made`` it has
        failed."""
        with self._lock:
            if made is not None:
                made.refuse()
            if array.nbytes:
                self.device.download(memory, 0, address_of(array), array.nbytes)
            if made is not None:
                self._end(made)

    def hand_over(self, memory: DeviceMemory, stream: int, waits: bool) -> None:
        """Somebody else's ``stream`` works there from now on, and unless it ``waits`` already,
        after what is asked for so far."""
        if stream == self.device.stream:
            return
        self.device.share(memory, stream)
        if not waits:
            with self._lock:
                self.device.precede(stream)

    def finish(self, made: PendingCall | None, earlier: bool = False) -> None:
        """Wait for all that is asked for; RunError if the call that ``made`` a result has failed,
        which is an ``earlier`` one if the result is for another."""
        with self._lock:
            if made is not None:
                made.refuse(earlier)
            self.device.synchronize()
            if made is not None:
                self._end(made, earlier)

    def _end(self, made: PendingCall, earlier: bool = False) -> None:
        """Find out how a call has ended; RunError if it has failed."""
        self.late.settle()
        if not made.ended:
            self.device.synchronize()
            self.late.settle()
        made.refuse(earlier)
