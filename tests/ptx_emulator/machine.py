"""Kernels, thread by thread: those that stand furthest behind run first, all together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np
from ptx_emulator.barriers import Barriers
from ptx_emulator.copies import BoxCopies, ThreadCopies
from ptx_emulator.fragments import WARP, WARP_GROUP
from ptx_emulator.memory import SHARED_START, GpuFaultError
from ptx_emulator.plain import NOTHING, plain_step
from ptx_emulator.products import GroupProducts, matrix_load, warp_product
from ptx_emulator.syntax import Instruction, KernelCode
from ptx_emulator.threads import ENDED, RUNS, WAITS, Surroundings, Threads, all_groups

from modelcc.ir.types import Array

LANES = 8192
"""Threads at a time, or those of one group."""

Go = Callable[[Array], Array]
"""Takes threads that come to an instruction, gives those that go on behind it, others with them."""

_NAME = re.compile(r"%[\w@]+|\b[a-z]\w*@\d+")


def run_kernel(
    code: KernelCode, grid: tuple[int, int, int], block: tuple[int, int, int], around: Surroundings
) -> None:
    """Run all groups of a grid; GpuFaultError for what a GPU would not do, or never end."""
    groups, threads = all_groups(grid), int(np.prod(block))
    count = max(1, LANES // threads)
    for start in range(0, len(groups), count):
        Machine(code, grid, block, groups[start : start + count], around).run()


class Machine:
    """Some groups of a grid."""

    def __init__(
        self,
        code: KernelCode,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        groups: Array,
        around: Surroundings,
    ) -> None:
        self._threads = threads = Threads(code, around, grid, block, groups)
        self._barriers = Barriers()
        self._copies, self._products = ThreadCopies(threads), GroupProducts(threads)
        self._boxes = BoxCopies(threads, self._barriers)
        self._at_barrier = np.full(threads.count, -1)
        self._expected = np.zeros(threads.count, np.int64)
        self._arrived: dict[int, Array] = {}
        self._steps = [self._step(instruction) for instruction in code.instructions]
        self._names = [frozenset(_NAME.findall(i.text)) for i in code.instructions]

    def run(self) -> None:
        """Until all threads have ended."""
        threads = self._threads
        with np.errstate(all="ignore"):
            while (threads.status != ENDED).any():
                running = threads.status == RUNS
                if running.any():
                    self._advance(running)
                elif not self._boxes.arrive():
                    raise GpuFaultError(self._stuck())
                else:
                    self._wake()

    def _stuck(self) -> str:
        threads = self._threads
        places = sorted({int(n) for n in threads.at[threads.status == WAITS]})
        where = ", ".join(f"{n}: {threads.code.instructions[n].text}" for n in places)
        return f"{threads.code.name}: nobody goes on, at {where}"

    def _wake(self) -> None:
        """Those that wait for barriers in memory look again."""
        threads = self._threads
        waiting = np.flatnonzero(threads.status == WAITS)
        tests = [n for n, i in enumerate(threads.code.instructions) if "try_wait" in i.parts]
        threads.status[waiting[np.isin(threads.at[waiting], tests)]] = RUNS

    def _advance(self, running: Array) -> None:
        """Those that stand furthest behind, up to where others are."""
        threads = self._threads
        places = threads.at[running]
        at = int(places.min())
        lanes = np.flatnonzero(running)[places == at]
        ahead = places[places > at]
        limit = int(ahead.min()) if len(ahead) else len(self._steps)
        try:
            while at < limit:
                goes_on = self._one(at, lanes)
                if goes_on is None:
                    return
                at += 1
            threads.at[lanes] = at
        except GpuFaultError as error:
            text = threads.code.instructions[at].text
            raise GpuFaultError(f"{threads.code.name}, {at}: {text}: {error}") from error

    def _one(self, at: int, lanes: Array) -> bool | None:
        """Do an instruction; None if threads do not simply go on to the next one."""
        threads, instruction = self._threads, self._threads.code.instructions[at]
        guard, acting = instruction.guard, lanes
        if guard is not None:
            acting = lanes[threads.registers[guard][lanes] != instruction.negated]
        name = instruction.parts[0]
        if name == "bra":
            threads.at[lanes] = at + 1
            threads.at[acting] = threads.code.labels[instruction.operands[0]]
            return None
        if name in ("ret", "exit"):
            threads.at[lanes] = at + 1
            threads.status[acting] = ENDED
            self._release_groups()
            return None
        if name != "wgmma":
            self._products.check(self._names[at], acting)
        step = self._steps[at]
        threads.at[lanes] = at
        if not len(acting):
            return True
        gone = step(acting)
        if gone is acting and len(acting) == len(lanes):
            threads.status[lanes] = RUNS
            return True
        waiting = np.setdiff1d(lanes, acting, assume_unique=True)
        threads.at[waiting] = at + 1
        threads.at[gone], threads.status[gone] = at + 1, RUNS
        return None

    # --- what instructions do

    def _step(self, instruction: Instruction) -> Go:
        parts = instruction.parts
        if parts == ("griddepcontrol", "wait"):
            return self._wait_for_kernels
        if parts[0] in ("bra", "ret", "exit") or parts[0] in NOTHING:
            return self._fence if parts[:3] == ("fence", "proxy", "async") else _go_on
        together = self._together(instruction)
        if together:
            return together
        step = self._beside(instruction) or plain_step(self._threads, instruction)
        if step is None:
            raise NotImplementedError(instruction.text)
        return _alone(step)

    def _wait_for_kernels(self, lanes: Array) -> Array:
        self._threads.ahead[lanes] = False
        return lanes

    def _fence(self, lanes: Array) -> Array:
        self._threads.shared.fence(lanes, self._threads.count)
        return lanes

    def _beside(self, instruction: Instruction) -> Callable[[Array], None] | None:
        """What goes on beside threads."""
        parts = instruction.parts
        if "prefetch" in parts:
            return self._copies.prefetch(instruction)
        if parts[:2] == ("cp", "async"):
            return (self._boxes if "bulk" in parts else self._copies).step(instruction)
        if parts[0] == "mbarrier":
            return self._barrier_step(instruction)
        return None

    def _barrier_step(self, instruction: Instruction) -> Callable[[Array], None] | None:
        threads, parts, operands = self._threads, instruction.parts, instruction.operands
        if "init" in parts:
            place, count = threads.address(operands[0]), threads.reader(operands[1], "u32")

            def init(lanes: Array) -> None:
                for group, at, n in zip(threads.group[lanes], place(lanes), count(lanes),
                                        strict=True):  # fmt: skip
                    self._barriers.make(int(group), int(at), int(n))

            return init
        if "arrive" in parts:
            place = threads.address(operands[1])
            size = threads.reader(operands[2] if "expect_tx" in parts else "0", "u32")

            def arrive(lanes: Array) -> None:
                for group, at, n in zip(threads.group[lanes], place(lanes), size(lanes),
                                        strict=True):  # fmt: skip
                    self._barriers.arrive(int(group), int(at), int(n))
                self._wake()

            return arrive
        return None

    def _together(self, instruction: Instruction) -> Go | None:
        """What threads do together."""
        threads, parts = self._threads, instruction.parts
        if parts[0] == "bar" or parts[0] == "barrier":
            return self._group_barrier(instruction)
        if "try_wait" in parts:
            return self._try_wait(instruction)
        if parts[0] == "shfl":
            return self._exchange(instruction)
        if parts[0] == "vote":
            return self._vote(instruction)
        if parts[0] == "mma":
            return self._of_units(warp_product(threads, instruction), threads.warp)
        if parts[0] == "ldmatrix":
            return self._of_units(matrix_load(threads, instruction), threads.warp)
        if parts[0] == "wgmma":
            unit = (
                threads.group * (-(-threads.threads // WARP_GROUP)) + threads.thread // WARP_GROUP
            )
            return self._of_units(self._products.step(instruction), unit)
        return None

    def _of_units(self, step: Callable[[Array], None], unit: Array) -> Go:
        def go(lanes: Array) -> Array:
            ready = self._threads.together(lanes, unit)
            if len(ready):
                step(ready)
            return _same(lanes, ready)

        return go

    def _group_barrier(self, instruction: Instruction) -> Go:
        threads, operands = self._threads, instruction.operands
        reduces = "red" in instruction.parts
        number = threads.reader(operands[1 if reduces else 0], "u32")
        counts = operands[1:] if not reduces else ()
        count = int(counts[0]) if counts else 0
        if "arrive" in instruction.parts:
            return _alone(lambda lanes: self._arrive(lanes, number(lanes)))
        read = threads.reader(operands[-1], "pred") if reduces else None
        write = threads.writer(operands[0], "pred") if reduces else None
        combine = np.any if "or" in instruction.parts else np.all

        def go(lanes: Array) -> Array:
            threads.status[lanes] = WAITS
            self._at_barrier[lanes], self._expected[lanes] = number(lanes), count
            ready = self._complete_groups()
            if read and write and len(ready):
                given = read(ready)
                for group in np.unique(threads.group[ready]):
                    own = threads.group[ready] == group
                    write(ready[own], np.repeat(combine(given[own]), int(own.sum())))
            self._at_barrier[ready] = -1
            elsewhere = ready[threads.at[ready] != threads.at[lanes[0]]]
            if len(elsewhere) and reduces:
                raise NotImplementedError("a reduction at two places")
            threads.at[elsewhere] += 1
            threads.status[elsewhere] = RUNS
            here = ready[threads.at[ready] == threads.at[lanes[0]]] if len(elsewhere) else ready
            return _same(lanes, here)

        return go

    def _arrive(self, lanes: Array, numbers: Array) -> None:
        """Threads come to barriers and go on."""
        count = len(self._threads.groups)
        for number in np.unique(numbers):
            here = lanes[numbers == number]
            come = np.bincount(self._threads.group[here], minlength=count)
            self._arrived[int(number)] = self._arrived.get(int(number), 0) + come
        self._release_groups()

    def _complete_groups(self) -> Array:
        """Threads at barriers that all have come to."""
        threads, ready = self._threads, np.zeros(self._threads.count, np.bool_)
        waiting = (threads.status == WAITS) & (self._at_barrier >= 0)
        count = len(threads.groups)
        living = np.bincount(threads.group[threads.status != ENDED], minlength=count)
        for number in np.unique(self._at_barrier[waiting]):
            here = waiting & (self._at_barrier == number)
            come = np.bincount(threads.group[here], minlength=count)
            arrived = self._arrived.setdefault(int(number), np.zeros(count, np.int64))
            needed = np.zeros(count, np.int64)
            np.maximum.at(needed, threads.group[here], self._expected[here])
            over = (come > 0) & (come + arrived == np.where(needed > 0, needed, living))
            arrived[over] = 0
            ready |= here & over[threads.group]
        return np.flatnonzero(ready)

    def _release_groups(self) -> None:
        """Threads that have ended are not waited for."""
        ready = self._complete_groups()
        self._at_barrier[ready] = -1
        self._threads.at[ready] += 1
        self._threads.status[ready] = RUNS

    def _try_wait(self, instruction: Instruction) -> Go:
        threads, (to, place, parity) = self._threads, instruction.operands[:3]
        address, phase = threads.address(place), threads.reader(parity, "u32")
        write = threads.writer(to, "pred")

        def go(lanes: Array) -> Array:
            groups, places, phases = threads.group[lanes], address(lanes), phase(lanes)
            same = (np.diff(groups) == 0) & (np.diff(places) == 0) & (np.diff(phases) == 0)
            firsts = np.concatenate([[0], np.flatnonzero(~same) + 1])
            over = [self._barriers.is_over(int(groups[n]), int(places[n]), int(phases[n]))
                    for n in firsts]  # fmt: skip
            done = np.repeat(over, np.diff([*firsts, len(lanes)]))
            threads.status[lanes[~done]] = WAITS
            gone = lanes[done]
            write(gone, np.full(len(gone), True))
            return _same(lanes, gone)

        return go

    def _exchange(self, instruction: Instruction) -> Go:
        """``shfl.sync`` ("shfl.sync", with its formulas of lanes and limits)."""
        threads, operands = self._threads, instruction.operands
        mode, (to, *valid) = instruction.parts[2], operands[0].split("|")
        value, by, limit, members = operands[1:]
        read = [threads.reader(o, "u32") for o in (value, by, limit, members)]
        write = threads.writer(to, "u32")
        flag = threads.writer(valid[0], "pred") if valid else None
        lane, masks = threads.thread % WARP, np.zeros(threads.count, np.int64)

        def go(lanes: Array) -> Array:
            masks[lanes] = read[3](lanes)
            ready = threads.members(lanes, masks)
            if not len(ready):
                return ready
            own = lane[ready]
            b, c = read[1](ready).astype(np.int64) & 31, read[2](ready).astype(np.int64)
            segment = c >> 8 & 31
            most, least = (own & segment) | (c & 31 & ~segment), own & segment
            source = {
                "up": own - b, "down": own + b, "bfly": own ^ b,
                "idx": least | (b & ~segment),
            }[mode]  # fmt: skip
            inside = source >= most if mode == "up" else source <= most
            taken = ready + np.where(inside, source - own, 0)
            if not np.isin(taken, ready).all():
                raise GpuFaultError("a value of a thread that does not take part")
            values = threads.reader(value, "u32")(taken)
            write(ready, values)
            if flag:
                flag(ready, inside)
            return _same(lanes, ready)

        return go

    def _vote(self, instruction: Instruction) -> Go:
        threads, (to, given, _) = self._threads, instruction.operands
        mode, read = (
            instruction.parts[2],
            threads.reader(instruction.operands[1].lstrip("!"), "pred"),
        )
        turned = given.startswith("!")
        write = threads.writer(to, "u32" if mode == "ballot" else "pred")

        def go(lanes: Array) -> Array:
            ready = threads.together(lanes, threads.warp)
            votes = read(ready) != turned
            for warp in np.unique(threads.warp[ready]):
                own = threads.warp[ready] == warp
                bits = (threads.thread[ready[own]] % WARP)[votes[own]]
                found = {"ballot": np.uint32(sum(1 << int(n) for n in bits)),
                         "any": votes[own].any(), "all": votes[own].all()}[mode]  # fmt: skip
                write(ready[own], np.repeat(np.array([found]), int(own.sum())))
            return _same(lanes, ready)

        return go


def _go_on(lanes: Array) -> Array:
    return lanes


def _alone(step: Callable[[Array], None]) -> Go:
    def go(lanes: Array) -> Array:
        step(lanes)
        return lanes

    return go


def _same(lanes: Array, ready: Array) -> Array:
    """The same object, where these are the same threads."""
    return lanes if len(lanes) == len(ready) and (lanes == ready).all() else ready


def shared_layout(
    code: KernelCode, given: Sequence[str], dynamic: int
) -> tuple[dict[str, int], int]:
    """Where names of shared memory are, and its bytes: a kernel's own, then the launch's."""
    places, at = dict[str, int](), SHARED_START
    for name, (align, size) in code.shared.items():
        at += -at % align
        places[name] = at
        at += size
    if dynamic:
        at += -at % 1024
        places.update(dict.fromkeys(given, at))
        at += dynamic
    return places, at - SHARED_START
