"""Resources that kernels use of a device, and the rates of the machine that they are scheduled
for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CompiledKernel:
    """Resources of machine code: ``registers`` per thread, and ``local`` bytes per thread in the
    device's memory, for spilled registers and arrays."""

    registers: int
    local: int


@dataclass(frozen=True)
class GroupUse:
    """Resources of launches of ``function``: ``threads`` per group and bytes of ``shared`` memory;
    registers and local bytes per thread, as in a :class:`CompiledKernel`, None if the driver
    compiles the kernel.

    Occupancy as a fraction of a compute unit's maximum threads: as ``planned`` by the schedule, or
    by threads and shared memory if the schedule assumes no number of registers, and the actual
    ``occupancy`` as limited by registers.  ``flops`` is the machine's peak rate for it, in
    operations per second.
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
    """The ``machine`` that kernels are scheduled for: the bandwidth of its memory in bytes per
    second, its size in bytes (0: unknown), and the resources of kernels, by functions' names."""

    machine: str
    bandwidth: float
    memory: int
    uses: Mapping[str, GroupUse]
