"""What kernels take of a device, and the rates of the machine that they are scheduled for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CompiledKernel:
    """What machine code takes: ``registers`` of a thread, and its ``local`` bytes in the device's
    memory, which are registers that are spilled and arrays."""

    registers: int
    local: int


@dataclass(frozen=True)
class GroupUse:
    """What launches of ``function`` take: the ``threads`` of a group and the bytes that they
    share; registers and local bytes of a thread, as of a :class:`CompiledKernel`, None where the
    driver compiles the kernel.

    Of the threads that a unit of the machine may have there is a part at once: as ``planned`` by
    the schedule, or by threads and shared memory where that counts on no number of registers, and
    the ``occupancy`` that registers leave of it.
    ``flops`` are the operations a second that the machine has for it.
    """

    function: str
    threads: int
    shared: int
    planned: float
    flops: float
    registers: int | None = None
    local: int | None = None
    occupancy: float | None = None


@dataclass(frozen=True)
class DeviceFacts:
    """The ``machine`` that kernels are scheduled for: bytes a second of its memory, the bytes that
    it has (0: not known), and what kernels take of it, by functions' names."""

    machine: str
    bandwidth: float
    memory: int
    uses: Mapping[str, GroupUse]
