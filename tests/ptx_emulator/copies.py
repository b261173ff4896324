"""Copies to shared memory beside the threads: as early or as late as they may happen."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from ptx_emulator.barriers import Barriers
from ptx_emulator.fragments import CHUNK, swizzled
from ptx_emulator.memory import GpuFaultError
from ptx_emulator.syntax import Instruction
from ptx_emulator.threads import PARAMETERS, Box, Threads
from ptx_emulator.values import word_type

from modelcc.ir.types import Array

Step = Callable[[Array], None]
_BOX_SOURCE = re.compile(r"\[([%\w@]+),\s*\{([^}]*)\}\]$")
_ELEMENT_BYTES = {0: 1, 6: 2, 9: 2}
"""Of types of maps, as the driver numbers them."""


@dataclass
class _Copied:
    """By threads, as part of the ``number``-th group of each; ``size`` bytes, zeros from
    ``valid`` on."""

    lanes: Array
    number: Array
    to: Array
    source: Array
    valid: Array
    size: int

    def some(self, which: Array) -> _Copied:
        """Of some of the threads."""
        return _Copied(self.lanes[which], self.number[which], self.to[which], self.source[which],
                       self.valid[which], self.size)  # fmt: skip


class ThreadCopies:
    """``cp.async``: copies of threads, which each waits for itself."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._committed = np.zeros(threads.count, np.int64)
        self._pending: list[_Copied] = []

    def step(self, instruction: Instruction) -> Step:
        """What one of the instructions does."""
        if "commit_group" in instruction.parts:
            return self._commit
        if "wait_all" in instruction.parts:
            return lambda lanes: self._wait(lanes, -1)
        if "wait_group" in instruction.parts:
            left = int(instruction.operands[0])
            return lambda lanes: self._wait(lanes, left)
        return self._copy(instruction)

    def prefetch(self, instruction: Instruction) -> Step:
        """``cp.async.bulk.prefetch``: nothing, of memory that is there."""
        source, amount = instruction.operands
        threads = self._threads
        places, sizes = threads.address(source), threads.reader(amount, "u32")

        def step(lanes: Array) -> None:
            first, size = places(lanes), sizes(lanes).astype(np.int64)
            if (first % 16).any() or (size % 16).any() or (size <= 0).any():
                raise GpuFaultError("what is prefetched is no multiple of 16 bytes")
            for place in (first, first + size - 4):
                threads.global_words(lanes, place, 4)

        return step

    def _commit(self, lanes: Array) -> None:
        self._committed[lanes] += 1

    def _copy(self, instruction: Instruction) -> Step:
        to, source, amount, *valid = instruction.operands
        size, threads = int(amount), self._threads
        places, sources = threads.address(to), threads.address(source)
        count = threads.reader(valid[0] if valid else amount, "u32")

        def step(lanes: Array) -> None:
            there = count(lanes) > 0
            threads.note(instruction, "global", lanes[there], sources(lanes)[there], size)
            threads.note(instruction, "shared", lanes, places(lanes), size)
            copied = _Copied(lanes, self._committed[lanes], places(lanes), sources(lanes),
                             count(lanes).astype(np.int64), size)  # fmt: skip
            if threads.around.early:
                self._do(copied, np.full(len(lanes), True))
            else:
                threads.check_reads(lanes[there], copied.source[there])
                self._pending.append(copied)

        return step

    def _wait(self, lanes: Array, left: int) -> None:
        waits = np.zeros(self._threads.count, np.bool_)
        waits[lanes] = True
        pending, self._pending = self._pending, []
        for copied in pending:
            over = copied.number < self._committed[copied.lanes] - left
            due = waits[copied.lanes] & (over | (left < 0))
            self._do(copied, due)
            if not due.all():
                self._pending.append(copied.some(~due))

    def _do(self, copied: _Copied, which: Array) -> None:
        threads, size = self._threads, copied.size
        lanes, valid = copied.lanes[which], copied.valid[which]
        to, source = copied.to[which], copied.source[which]
        if (to % size).any() or (source[valid > 0] % size).any():
            raise GpuFaultError(f"cp.async of {size} bytes at no multiple of that")
        unit = 4 if not (valid % 4).any() else 2 if not (valid % 2).any() else 1
        for n in range(0, size, unit):
            words = np.zeros(len(lanes), word_type(unit))
            there = valid > n
            words[there] = threads.global_words(lanes[there], source[there] + n, unit)
            threads.shared.put(threads.group[lanes], to + n, words, unit, lanes)


@dataclass
class _Boxes:
    """Of one tensor, to places in the shared memory of groups, with the barriers that count."""

    box: Box
    groups: Array
    to: Array
    starts: Array
    notes: Array
    lanes: Array


class BoxCopies:
    """``cp.async.bulk.tensor``: boxes of tensors, which a barrier counts the bytes of."""

    def __init__(self, threads: Threads, barriers: Barriers) -> None:
        self._threads, self._barriers = threads, barriers
        self._pending: list[_Boxes] = []

    def step(self, instruction: Instruction) -> Step:
        """A copy to shared memory."""
        to, source, barrier = instruction.operands[:3]
        match, threads = _BOX_SOURCE.match(source), self._threads
        assert match is not None and instruction.parts[6] == "global", instruction.text
        places, notes = threads.address(to), threads.address(barrier)
        maps = threads.reader(match[1], "u64")
        along = [threads.reader(p.strip(), "s32") for p in match[2].split(",")]

        def step(lanes: Array) -> None:
            starts = np.stack([read(lanes) for read in along], axis=1).astype(np.int64)
            owners, where = maps(lanes), threads.group[lanes]
            to, noted = places(lanes), notes(lanes)
            for owner in np.unique(owners):
                box, own = threads.around.maps[int(owner) - PARAMETERS], owners == owner
                self._ask(_Boxes(box, where[own], to[own], starts[own], noted[own], lanes[own]))

        return step

    def _ask(self, boxes: _Boxes) -> None:
        if boxes.starts.shape[1] != len(boxes.box[4]):
            raise GpuFaultError(f"coordinates of a box of {len(boxes.box[4])} axes")
        if (boxes.to % 128).any():
            raise GpuFaultError("a box goes to no multiple of 128 bytes")
        if self._threads.around.early:
            self._copy(boxes)
        else:
            if self._threads.ahead[boxes.lanes].any():
                self._read(boxes)  # what it may not read it may not be asked for either
            self._pending.append(boxes)

    def _copy(self, boxes: _Boxes) -> None:
        data = self._read(boxes)
        count = data.shape[1]
        to = swizzled(boxes.to[:, None] + np.arange(0, count, CHUNK))
        chunks = data.view(np.uint64).reshape(*to.shape, 2)
        self._threads.shared.arrive(boxes.groups[:, None], to, chunks)
        for group, note in zip(boxes.groups, boxes.notes, strict=True):
            self._barriers.bring(int(group), int(note), count)

    def _read(self, boxes: _Boxes) -> Array:
        """Bytes of boxes, the last axis first; zeros outside of the tensor."""
        kind, address, sizes, strides, extents = boxes.box
        size, rank = _ELEMENT_BYTES[kind], len(extents)
        count = len(boxes.starts)
        places = np.full((count, *(1,) * rank), address)
        inside = np.full(places.shape, True)
        for axis, step in enumerate((size, *strides)):
            shape = tuple(-1 if rank - 1 - n == axis else 1 for n in range(rank))
            along = np.arange(extents[axis]).reshape(shape)
            at = boxes.starts[:, axis].reshape(-1, *(1,) * rank) + along
            places = places + at * step
            inside = inside & (at >= 0) & (at < sizes[axis])
        words = np.zeros(inside.shape, word_type(size))
        owners = np.broadcast_to(boxes.lanes.reshape(-1, *(1,) * rank), inside.shape)
        words[inside] = self._threads.global_words(owners[inside], places[inside], size)
        return words.reshape(len(words), -1).view(np.uint8)

    def arrive(self) -> bool:
        """What was asked for first arrives; False if there is nothing."""
        if not self._pending:
            return False
        self._copy(self._pending.pop(0))
        return True
