"""Tensor cores: ``mma`` of warps, and ``wgmma`` of four warps each, which goes on beside them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from ptx_emulator.fragments import (
    WARP,
    WARP_GROUP,
    TileDescriptor,
    column_places,
    multiplied,
    multiplied_tf32,
    row_places,
    spread,
    sum_places,
    tile_chunks,
)
from ptx_emulator.memory import GpuFaultError
from ptx_emulator.syntax import Instruction
from ptx_emulator.threads import Threads, parts_of
from ptx_emulator.values import NUMBERS, numbers

from modelcc.ir.types import Array

Step = Callable[[Array], None]
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}


def _shape(parts: Sequence[str]) -> tuple[int, int, int]:
    match = next(filter(None, map(_SHAPE.match, parts)))
    return int(match[1]), int(match[2]), int(match[3])


def _elements(threads: Threads, names: Sequence[str], kind: str, lanes: Array, unit: int) -> Array:
    """Of registers: [register, unit, lane of it, element], as numbers that products take."""
    words = np.stack([threads.registers[name][lanes] for name in names])
    found = words.view(NUMBERS[kind]).reshape(len(names), -1, unit, 32 // _BITS[kind])
    if kind == "tf32":
        found = (words & np.uint32(0xFFFFE000)).view(np.float32).reshape(found.shape)
    return found


def warp_product(threads: Threads, instruction: Instruction) -> Step:
    """``mma.sync``: sums of 16 rows and 8 columns."""
    parts = instruction.parts
    _, columns, terms = _shape(parts)
    to, left, right, sums = map(parts_of, instruction.operands)
    sum_kind, left_kind, right_kind = parts[-1], parts[-3], parts[-2]
    if "satfinite" in parts:
        raise NotImplementedError("mma with satfinite")
    row, column = sum_places(columns, WARP)
    writes = [threads.writer(name, sum_kind) for name in to]
    reads = [threads.reader(name, sum_kind) for name in sums]
    multiply = multiplied_tf32 if left_kind == "tf32" else multiplied

    def step(lanes: Array) -> None:
        a = _elements(threads, left, left_kind, lanes, WARP)
        b = _elements(threads, right, right_kind, lanes, WARP)
        rows = spread(a, *row_places(_BITS[left_kind], len(left), WARP), (16, terms))
        others = spread(b, *column_places(_BITS[right_kind], len(right)), (8, terms))
        held = np.stack([read(lanes) for read in reads]).reshape(len(to), -1, WARP)
        found = multiply(rows, others, spread(held, row, column, (16, columns)))
        for n, write in enumerate(writes):
            write(lanes, found[:, row[n], column[n]].reshape(-1))

    return step


def matrix_load(threads: Threads, instruction: Instruction) -> Step:
    """``ldmatrix``: 8 rows of 16 bytes each for one, two or four registers."""
    to = parts_of(instruction.operands[0])
    address = threads.address(instruction.operands[1])
    writes = [threads.writer(name, "u32") for name in to]
    turned = "trans" in instruction.parts
    lane = np.arange(WARP)

    def step(lanes: Array) -> None:
        starts, groups = address(lanes).reshape(-1, WARP), threads.group[lanes].reshape(-1, WARP)
        rows = slice(0, 8 * len(to))
        owners = lanes.reshape(-1, WARP)[:, rows].reshape(-1)
        threads.note(instruction, "shared", owners, starts[:, rows].reshape(-1), 16)
        if (starts[:, rows] % 16).any():
            raise GpuFaultError("a row of a matrix at no multiple of 16 bytes")
        for n, write in enumerate(writes):
            row = starts[:, 8 * n : 8 * n + 8, None] + 2 * np.arange(8)
            owner = np.broadcast_to(groups[:, :1, None], row.shape)
            held = threads.shared.words(owner, row, 2)
            if turned:
                held = np.swapaxes(held, 1, 2)
            low, high = (held[:, lane // 4, lane % 4 * 2 + k].astype(np.uint32) for k in (0, 1))
            write(lanes, (low | high << np.uint32(16)).reshape(-1))

    return step


@dataclass
class _Asked:
    """A product of some groups of four warps, of the ``number``-th group of each."""

    lanes: Array
    number: Array
    run: Callable[[Array], None]
    registers: tuple[str, ...]


class GroupProducts:
    """``wgmma``: what is asked for, and which registers nobody may touch meanwhile."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._committed = np.zeros(threads.count, np.int64)
        self._pending: list[_Asked] = []
        self._busy: dict[str, Array] = {}

    def step(self, instruction: Instruction) -> Step:
        """What one of the instructions does."""
        if "commit_group" in instruction.parts:
            return self._commit
        if "wait_group" in instruction.parts:
            left = int(instruction.operands[0])
            return lambda lanes: self._wait(lanes, left)
        if "fence" in instruction.parts:
            return lambda lanes: None
        return self._multiply(instruction)

    def check(self, names: frozenset[str], lanes: Array) -> None:
        """GpuFaultError if these registers are in use."""
        for name in names & self._busy.keys():
            if self._busy[name][lanes].any():
                raise GpuFaultError(f"register {name} is touched before wgmma.wait_group")

    def _commit(self, lanes: Array) -> None:
        self._committed[lanes] += 1

    def _multiply(self, instruction: Instruction) -> Step:
        threads, operands = self._threads, instruction.operands
        if operands[2] == "p" or (operands[3:] and operands[3] not in ("1", "0")):
            raise NotImplementedError(instruction.text)
        run = _tile_product(threads, instruction)
        kept = parts_of(operands[0])
        if operands[1].startswith("{"):
            kept += parts_of(operands[1])

        def step(lanes: Array) -> None:
            asked = _Asked(lanes, self._committed[lanes], run(lanes), tuple(kept))
            if threads.around.early:
                asked.run(np.full(len(lanes) // WARP_GROUP, True))
            self._pending.append(asked)
            for name in kept:
                busy = self._busy.setdefault(name, np.zeros(threads.count, np.bool_))
                busy[lanes] = True

        return step

    def _wait(self, lanes: Array, left: int) -> None:
        waits = np.zeros(self._threads.count, np.bool_)
        waits[lanes] = True
        pending, self._pending, self._busy = self._pending, [], {}
        for asked in pending:
            due = waits[asked.lanes] & (asked.number < self._committed[asked.lanes] - left)
            whole = due.reshape(-1, WARP_GROUP)
            if (whole.any(1) != whole.all(1)).any():
                raise GpuFaultError("a part of four warps waits for wgmma")
            if not self._threads.around.early:
                asked.run(whole[:, 0])
            rest = ~due
            if rest.any():
                run, taken = asked.run, np.flatnonzero(~whole[:, 0])
                kept = _Asked(asked.lanes[rest], asked.number[rest], _some(run, taken, len(whole)),
                              asked.registers)  # fmt: skip
                self._pending.append(kept)
                for name in asked.registers:
                    busy = self._busy.setdefault(name, np.zeros(self._threads.count, np.bool_))
                    busy[kept.lanes] = True


def _some(run: Callable[[Array], None], which: Array, count: int) -> Callable[[Array], None]:
    """Of what is left of ``count``."""

    def of_rest(chosen: Array) -> None:
        whole = np.zeros(count, np.bool_)
        whole[which] = chosen
        run(whole)

    return of_rest


def _tile_product(
    threads: Threads, instruction: Instruction
) -> Callable[[Array], Callable[[Array], None]]:
    """Takes the lanes of groups, gives what multiplies for some of these."""
    rows, columns, terms = _shape(instruction.parts)
    kind = instruction.parts[-1]
    size = _BITS[kind] // 8
    names, left, right, accumulate, scale_a, scale_b, *turned = instruction.operands
    if scale_a != "1" or scale_b != "1":
        raise NotImplementedError("negated operands")
    to = parts_of(names)
    row, column = sum_places(columns, WARP_GROUP)
    registers = parts_of(left) if left.startswith("{") else None
    first = None if registers else threads.reader(left, "u64")
    second = threads.reader(right, "u64")
    flags = [t == "1" for t in turned]
    left_turned = flags[0] if first and flags else False
    right_turned = flags[-1] if flags else False

    def ask(lanes: Array) -> Callable[[Array], None]:
        heads = lanes[::WARP_GROUP]
        a_tile = TileDescriptor.of(first(heads)) if first else None
        b_tile = TileDescriptor.of(second(heads))

        def tile(which: Array, of: TileDescriptor, count: int, flag: bool) -> Array:
            own = TileDescriptor(of.start[which], of.leading[which], of.stride[which])
            at = tile_chunks(own, count, terms, size, flag)
            owner = threads.group[heads[which]][:, None, None]
            lines = threads.shared.seen_beside(owner, at)
            found = lines.reshape(*at.shape[:2], -1).view(NUMBERS[kind])
            return np.swapaxes(found, 1, 2) if flag else found

        def run(which: Array) -> None:
            if not which.any():
                return
            own = lanes.reshape(-1, WARP_GROUP)[which].reshape(-1)
            if a_tile is not None:
                a = tile(which, a_tile, rows, left_turned)
            else:
                assert registers is not None
                held = _elements(threads, registers, kind, own, WARP_GROUP)
                a = spread(held, *row_places(_BITS[kind], len(registers), WARP_GROUP),
                           (rows, terms))  # fmt: skip
            b = tile(which, b_tile, columns, right_turned)
            sums = np.stack([numbers(threads.registers[n][own], "f32") for n in to])
            matrix = spread(sums.reshape(len(to), -1, WARP_GROUP), row, column, (rows, columns))
            if accumulate == "0":
                matrix = np.zeros_like(matrix)
            found = multiplied(a, b, matrix)
            for n, name in enumerate(to):
                values = np.ascontiguousarray(found[:, row[n], column[n]].reshape(-1))
                threads.registers[name][own] = values.view(np.uint32)

        return run

    return ask
