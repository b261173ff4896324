"""All threads of some groups: their registers, where each stands, and what it reads and writes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np
from ptx_emulator.fragments import WARP
from ptx_emulator.memory import DeviceMemory, GpuFaultError, SharedMemory
from ptx_emulator.syntax import Instruction, KernelCode
from ptx_emulator.traffic import Traffic
from ptx_emulator.values import bits_of, numbers, register_type

from modelcc.ir.types import Array

RUNS, WAITS, ENDED = 0, 1, 2
UNITS = 4
"""Of the emulated GPU."""

PARAMETERS = 1 << 60
"""Where parameters are, for those who ask."""

Box = tuple[int, int, tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""A map of a tensor: type, address, sizes, strides in bytes but the first, box; innermost first."""

Read = Callable[[Array], Array]
_ADDRESS = re.compile(r"\[([%$@\w]+)(?:\+(-?\d+))?\]$")


@dataclass(frozen=True)
class Surroundings:
    """What a launch finds: memory, names, parameters and the maps among these, by offset.  Copies
    and products that nobody waits for are done as ``early`` as they can be, or as late."""

    memory: DeviceMemory
    names: Mapping[str, int]
    parameters: bytes
    maps: Mapping[int, Box]
    shared: int
    early: bool
    traffic: Traffic | None = None


@dataclass
class Threads:
    """Of the groups ``groups`` of a grid; a lane is a thread of any of them."""

    code: KernelCode
    around: Surroundings
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    groups: Array
    status: Array = field(init=False)
    at: Array = field(init=False)
    registers: dict[str, Array] = field(init=False)

    def __post_init__(self) -> None:
        self.threads = int(np.prod(self.block))
        self.count = count = self.threads * len(self.groups)
        self.status = np.full(count, RUNS, np.int8)
        self.at = np.zeros(count, np.int64)
        self.registers = {n: np.zeros(count, register_type(t)) for n, t in
                          self.code.registers.items()}  # fmt: skip
        lane = np.arange(count)
        self.group, self.thread = lane // self.threads, lane % self.threads
        warps = -(-self.threads // WARP)
        self.warp = self.group * warps + self.thread // WARP
        self.special = self._special(warps)
        self.shared = SharedMemory(len(self.groups), self.around.shared)
        size = sum(size for _, size in self.code.local.values())
        self.local = np.full((count, size + -size % 16), 0xFF, np.uint8)
        waits = any(i.parts == ("griddepcontrol", "wait") for i in self.code.instructions)
        self.ahead = np.full(count, waits)

    def _special(self, warps: int) -> Mapping[str, Array]:
        def along(number: Array, extents: tuple[int, int, int], name: str) -> dict[str, Array]:
            x, y, _ = extents
            found = number % x, number // x % y, number // (x * y)
            return {f"{name}.{d}": v.astype(np.uint32) for d, v in zip("xyz", found, strict=True)}

        sizes = {f"{name}.{d}": np.full(self.count, n, np.uint32)
                 for name, extents in (("%ntid", self.block), ("%nctaid", self.grid))
                 for d, n in zip("xyz", extents, strict=True)}  # fmt: skip
        own = {"%laneid": self.thread % WARP, "%warpid": self.thread // WARP,
               "%nsmid": np.full(self.count, UNITS)}  # fmt: skip
        return {
            **along(self.thread, self.block, "%tid"),
            **along(self.groups[self.group], self.grid, "%ctaid"),
            **sizes,
            **{name: v.astype(np.uint32) for name, v in own.items()},
        }

    # --- operands

    def reader(self, operand: str, kind: str) -> Read:
        """Reads numbers of a type."""
        if operand in self.registers:
            held = self.registers[operand]
            return lambda lanes: numbers(held[lanes], kind)
        if operand in self.special:
            special = self.special[operand]
            return lambda lanes: numbers(special[lanes], kind)
        constant = self._constant(operand, kind)
        return lambda lanes: np.repeat(constant, len(lanes), axis=0)

    def _constant(self, operand: str, kind: str) -> Array:
        if kind == "pred":
            return np.array([bool(int(operand, 0))])
        if operand[:2] in ("0f", "0d"):
            raw = bytes.fromhex(operand[2:])[::-1]
            (number,) = struct.unpack("<f" if operand[1] == "f" else "<d", raw)
            bits = np.array([number]).astype(np.float32 if operand[1] == "f" else np.float64)
            return numbers(bits.view(f"u{bits.itemsize}"), kind)
        value = self.around.names.get(operand)
        if value is None:
            value = int(operand.rstrip("U"), 0)
        return numbers(np.array([value & (1 << 64) - 1], np.uint64), kind)

    def writer(self, operand: str, kind: str) -> Callable[[Array, Array], None]:
        """Writes numbers of a type."""
        if operand == "_":
            return lambda lanes, values: None
        held = self.registers[operand]
        size = held.dtype.itemsize

        def write(lanes: Array, values: Array) -> None:
            held[lanes] = values if kind == "pred" else bits_of(values, kind, size)

        return write

    def address(self, operand: str) -> Read:
        """Reads where ``[register + number]`` points to."""
        match = _ADDRESS.match(operand)
        assert match is not None, operand
        moved = int(match[2] or 0)
        size = self.registers[match[1]].itemsize if match[1] in self.registers else 8
        place = self.reader(match[1], f"u{size * 8}")
        return lambda lanes: place(lanes).astype(np.int64) + moved

    # --- memory

    def note(
        self, instruction: Instruction, space: str, lanes: Array, places: Array, size: int
    ) -> None:
        """Count requests of threads, if anybody wants to know."""
        if self.around.traffic and space != "local" and len(lanes):
            own = self.warp[lanes], self.thread[lanes], places, size
            self.around.traffic.count(self.code.name, space, instruction.text, *own)

    def global_words(self, lanes: Array, addresses: Array, size: int) -> Array:
        """What threads read there; results of kernels only behind the wait for these."""
        self.check_reads(lanes, addresses)
        return self.around.memory.words(addresses, size)

    def check_reads(self, lanes: Array, addresses: Array) -> None:
        """GpuFaultError if one is of a result that may not be there yet; one row of addresses a
        thread."""
        ahead = self.ahead[lanes]
        if ahead.any():
            self.around.memory.check_given(addresses[ahead])

    def put_global(self, lanes: Array, addresses: Array, words: Array, size: int) -> None:
        """Store words; GpuFaultError before the wait for other kernels."""
        if self.ahead[lanes].any():
            raise GpuFaultError("a store before griddepcontrol.wait")
        self.around.memory.put(addresses, words, size)

    # --- where threads stand

    def together(self, lanes: Array, unit: Array) -> Array:
        """Those that stand and wait where ``lanes`` do, of units of which all living threads do."""
        waiting = self._waiting(lanes)
        units = int(unit.max()) + 1
        come, needed = (np.bincount(unit[who], minlength=units)
                        for who in (waiting, self.status != ENDED))  # fmt: skip
        return np.flatnonzero(waiting & (come == needed)[unit])

    def members(self, lanes: Array, masks: Array) -> Array:
        """Those that stand and wait where ``lanes`` do, of which all living ones do that their
        masks (of all threads) name; GpuFaultError if somebody does not name itself."""
        waiting, bit = self._waiting(lanes), 1 << self.thread % WARP
        if not (masks[lanes] & bit[lanes]).all():
            raise GpuFaultError("a thread is no member of its own mask")
        come, living = (np.bincount(self.warp[who], bit[who], int(self.warp.max()) + 1)
                        for who in (waiting, self.status != ENDED))  # fmt: skip
        missing = living.astype(np.int64) & ~come.astype(np.int64)
        return np.flatnonzero(waiting & (masks & missing[self.warp] == 0))

    def _waiting(self, lanes: Array) -> Array:
        self.status[lanes] = WAITS
        return (self.status == WAITS) & (self.at == self.at[lanes[0]])


def parts_of(operand: str) -> list[str]:
    """The registers of ``{a, b}``, or the one that it is."""
    return [p.strip() for p in operand.strip("{}").split(",")]


def all_groups(grid: tuple[int, int, int]) -> Array:
    """Numbers of the groups of a grid."""
    return np.arange(prod(grid))
