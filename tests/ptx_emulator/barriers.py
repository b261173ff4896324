"""Barriers in shared memory that count arrivals and bytes (PTX ISA, "mbarrier")."""

from __future__ import annotations

from dataclasses import dataclass

from ptx_emulator.memory import GpuFaultError


@dataclass
class Barrier:
    """One phase ends when all arrivals and bytes that are expected have come."""

    expected: int
    pending: int
    bytes: int = 0
    phase: int = 0

    def end_if_complete(self) -> None:
        """Begin the next phase."""
        if self.pending == 0 and self.bytes == 0:
            self.phase += 1
            self.pending = self.expected


class Barriers:
    """All of a launch, by group and address."""

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], Barrier] = {}

    def make(self, group: int, address: int, count: int) -> None:
        """A barrier of so many arrivals."""
        if address % 8:
            raise GpuFaultError("a barrier at no multiple of 8 bytes")
        self._held[group, address] = Barrier(count, count)

    def _of(self, group: int, address: int) -> Barrier:
        if (group, address) not in self._held:
            raise GpuFaultError(f"no barrier at {address}")
        return self._held[group, address]

    def arrive(self, group: int, address: int, expected_bytes: int = 0) -> None:
        """A thread has come; so many bytes have not."""
        barrier = self._of(group, address)
        if not barrier.pending:
            raise GpuFaultError("more threads arrive at a barrier than it waits for")
        barrier.bytes += expected_bytes
        barrier.pending -= 1
        barrier.end_if_complete()

    def bring(self, group: int, address: int, count: int) -> None:
        """Bytes have come."""
        barrier = self._of(group, address)
        barrier.bytes -= count
        barrier.end_if_complete()

    def is_over(self, group: int, address: int, parity: int) -> bool:
        """Whether the phase of this parity is over: the present one has the other."""
        return self._of(group, address).phase % 2 != parity
