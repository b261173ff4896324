"""What a driver of OpenCL tells of a device, as far as compiling for it depends on that."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OpenclFacts:
    """The ``vendor``, the names of ``extensions`` to OpenCL 1.2, whether the device is a ``gpu``
    and whether its memory is the host's (``unified``), the number of compute ``units``, the bytes
    of its memory, and the limits of a group: threads, and bytes of shared memory."""

    vendor: str
    extensions: frozenset[str]
    gpu: bool
    unified: bool
    units: int
    memory_bytes: int
    group_threads: int
    group_shared_bytes: int
