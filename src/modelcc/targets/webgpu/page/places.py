"""Where a page has the tensors of a program: buffers of the device, and memory of WebAssembly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modelcc.ir.index import evaluate
from modelcc.ir.program import Binding, Program

ALIGNMENT = 256
"""Bytes that what is bound by itself begins at multiples of."""

LARGEST = 256 << 20
"""Bytes that every implementation gives a buffer."""

NOWHERE = -1
Key = tuple[str, int]
"""A place of the plan and an offset in bytes in it, by which tensors that are one are known."""


@dataclass(frozen=True)
class BufferPart:
    """A buffer of the device, from ``offset`` on."""

    buffer: int
    offset: int


class PageMemory:
    """Buffers, given numbers as they are asked for; the first ones are of faults and the arena.

    Of the memory of the host there is as much as is asked for by :meth:`address`.
    """

    def __init__(self, program: Program, faults: int) -> None:
        self._program = program
        self.arena = evaluate(program.placed.arena, {}) if program.placed.definitions == () else 0
        self.buffers = [faults, self.arena]
        self.host_bytes = 0
        self._rooms: dict[str, BufferPart] = {}
        self._addresses: dict[str, int] = {}

    def key(self, name: str, env: Mapping[str, int]) -> Key:
        """What tells a tensor's memory from that of others."""
        binding = self._program.placed.bindings[name]
        if binding.place == "arena":
            return "arena", evaluate(binding.offset, env)
        return f"{binding.place}{self._program.position(name)}", 0

    def room(self, name: str, env: Mapping[str, int]) -> BufferPart:
        """Where a tensor is on the device."""
        place, offset = self.key(name, env)
        if place == "arena":
            return BufferPart(1, offset)
        found = self._rooms.get(place)
        if found is None:
            found = self._rooms[place] = self._new(name)
        return found

    def address(self, name: str, env: Mapping[str, int]) -> int:
        """Where a tensor is in the host's memory, from what is free there on."""
        place, offset = self.key(name, env)
        if place not in self._addresses:
            size = self.arena if place == "arena" else self.bytes(name)
            self._addresses[place] = self.take(size)
        return self._addresses[place] + offset

    def known(self, name: str) -> tuple[BufferPart | None, int]:
        """Where an input, output or constant is if it was asked for: on the device, the host."""
        place, _ = self.key(name, {})
        return self._rooms.get(place), self._addresses.get(place, NOWHERE)

    def take(self, size: int) -> int:
        """An address of the host of its own."""
        start = self.host_bytes
        self.host_bytes += _aligned(size)
        return start

    def bytes(self, name: str) -> int:
        """How large a tensor is."""
        type_ = self._program.types[name]
        return evaluate(type_.physical.size(type_.shape), {}) * type_.dtype.storage.bytes

    def _new(self, name: str) -> BufferPart:
        """Constants share buffers, others have one of their own."""
        size = _aligned(self.bytes(name))
        binding: Binding = self._program.placed.bindings[name]
        last = len(self.buffers) - 1
        if binding.place == "constant" and self._shared == last:
            filled = self.buffers[last]
            if filled + size <= LARGEST:
                self.buffers[last] = filled + size
                return BufferPart(last, filled)
        self.buffers.append(size)
        if binding.place == "constant":
            self._shared = last + 1
        return BufferPart(last + 1, 0)

    _shared = NOWHERE


def _aligned(size: int) -> int:
    return max(ALIGNMENT, -(-size // ALIGNMENT) * ALIGNMENT)
