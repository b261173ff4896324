"""The GPU's memory, and what groups of threads share, as strict as the hardware: addresses are
multiples of what they are read by, and lie in what was given."""

from __future__ import annotations

import numpy as np
from ptx_emulator.values import word_type

from modelcc.ir.types import Array

GRAIN = 16
"""Bytes of which it is known whether they may be touched."""
SHARED_START = 1024
"""Where shared memory begins; what is below belongs to the system."""


class GpuFaultError(Exception):
    """What ends a kernel on a GPU, or should."""


class DeviceMemory:
    """One piece of the host's memory; parts of it are given away and taken back."""

    def __init__(self, size: int) -> None:
        self._held = np.zeros(size + 256, np.uint8)
        start = -self._held.ctypes.data % 256
        self._bytes = self._held[start : start + size]
        self.base = int(self._bytes.ctypes.data)
        self._given = np.zeros(size // GRAIN, np.bool_)
        self._computed = np.zeros(size // GRAIN, np.bool_)
        self._next = 0

    def give(self, size: int) -> int:
        """The address of a new part, full of what is no number; memory between is nobody's."""
        start, taken = self._next, max(size, 1)
        self._next += taken + -taken % 256 + 256
        if self._next > len(self._bytes):
            raise GpuFaultError("the emulated GPU has no more memory")
        self._bytes[start : start + taken] = 0xFF
        grains = slice(start // GRAIN, -(-(start + taken) // GRAIN))
        self._given[grains], self._computed[grains] = True, False
        return self.base + start

    def take(self, address: int, size: int) -> None:
        """Nobody may touch it any more."""
        start = address - self.base
        self._given[start // GRAIN : -(-(start + max(size, 1)) // GRAIN)] = False

    def write(self, address: int, data: bytes) -> None:
        """From the host."""
        start = address - self.base
        self._bytes[start : start + len(data)] = np.frombuffer(data, np.uint8)

    def words(self, addresses: Array, size: int) -> Array:
        """What lies at addresses."""
        return self._bytes.view(word_type(size))[self._places(addresses, size)]

    def put(self, addresses: Array, words: Array, size: int) -> None:
        """Store words; where several go to one place, the last one."""
        places = self._places(addresses, size)
        self._bytes.view(word_type(size))[places] = words
        self._computed[places * size // GRAIN] = True

    def check_given(self, addresses: Array) -> None:
        """GpuFaultError if a kernel has written there: another one may be about to."""
        offsets = addresses.astype(np.int64) - self.base
        inside = (offsets >= 0) & (offsets < len(self._bytes))
        if self._computed[offsets[inside] // GRAIN].any():
            raise GpuFaultError("a result is read before griddepcontrol.wait")

    def _places(self, addresses: Array, size: int) -> Array:
        offsets = addresses.astype(np.int64) - self.base
        _check_multiples(offsets, size)
        inside = (offsets >= 0) & (offsets < len(self._bytes))
        given = inside & self._given[np.where(inside, offsets, 0) // GRAIN]
        if not given.all():
            where = int(addresses[~given][0])
            raise GpuFaultError(f"global memory at {where:#x} was not given, or taken back")
        return offsets // size


class SharedMemory:
    """Of several groups, each ``size`` bytes from :data:`SHARED_START` on.  Who has written a word
    without a fence since is remembered: tensor cores and the copying unit may not see it."""

    def __init__(self, groups: int, size: int) -> None:
        self.pitch = SHARED_START + size + -size % 16
        self._end = SHARED_START + size
        self.bytes = np.full(groups * self.pitch, 0xFF, np.uint8)
        self._writer = np.full(groups * self.pitch // 4, -1, np.int32)

    def words(self, groups: Array, addresses: Array, size: int) -> Array:
        """What lies at addresses of groups."""
        return self.bytes.view(word_type(size))[self._places(groups, addresses, size)]

    def put(self, groups: Array, addresses: Array, words: Array, size: int, lanes: Array) -> None:
        """Store words of threads."""
        places = self._places(groups, addresses, size)
        self.bytes.view(word_type(size))[places] = words
        for n in range(0, size, 4):
            self._writer[(places * size + n) // 4] = lanes

    def fence(self, lanes: Array, count: int) -> None:
        """What these threads of ``count`` have written is seen by units beside them."""
        fenced = np.zeros(count + 1, np.bool_)
        fenced[lanes] = True
        self._writer[fenced[self._writer]] = -1

    def seen_beside(self, groups: Array, addresses: Array) -> Array:
        """Chunks of 16 bytes for tensor cores, as two words each; GpuFaultError if a thread wrote
        there without a fence."""
        places = self._places(groups, addresses, 16)
        if (self._writer.reshape(-1, 4)[places] >= 0).any():
            raise GpuFaultError("shared memory is read beside threads without fence.proxy.async")
        return self.bytes.view(np.uint64).reshape(-1, 2)[places]

    def arrive(self, groups: Array, addresses: Array, data: Array) -> None:
        """Chunks of 16 bytes, as two words each, that the copying unit brings; GpuFaultError if a
        thread wrote there without a fence: its words may come later."""
        places = self._places(groups, addresses, 16)
        if (self._writer.reshape(-1, 4)[places] >= 0).any():
            raise GpuFaultError("a copy goes where threads wrote without fence.proxy.async")
        self.bytes.view(np.uint64).reshape(-1, 2)[places] = data
        self._writer.reshape(-1, 4)[places] = -1

    def _places(self, groups: Array, addresses: Array, size: int) -> Array:
        offsets = addresses.astype(np.int64)
        _check_multiples(offsets, size)
        outside = (offsets < SHARED_START) | (offsets + size > self._end)
        if outside.any():
            where = int(offsets[outside][0])
            raise GpuFaultError(f"shared memory at {where - SHARED_START} is outside of its "
                                f"{self._end - SHARED_START} bytes")  # fmt: skip
        return (groups * self.pitch + offsets) // size


def _check_multiples(offsets: Array, size: int) -> None:
    if (offsets % size).any():
        where = int(offsets[offsets % size != 0][0])
        raise GpuFaultError(f"an address that is no multiple of {size}: {where:#x}")
