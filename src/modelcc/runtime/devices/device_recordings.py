"""Programs whose device work is recorded, for the sizes and addresses of a call.

The device's own launches and copies are recorded; the host's work and transfers between the two
come before or after them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain

from modelcc.ir.index import Index
from modelcc.runtime.devices.device import DeviceMemory, Recording
from modelcc.runtime.devices.device_steps import (
    CopyMemory,
    DeviceLibraryCall,
    DevicePlace,
    End,
    KernelCall,
    MoveTensor,
    ReadNumbers,
    RunLoop,
    Step,
    TakeSide,
    kernel_calls,
)

MOST_RECORDED = 64
"""Recordings of different sizes or addresses that are kept."""


@dataclass(frozen=True)
class ProgramParts:
    """The steps of a program: conditions on sizes and uploads, the device's own work, downloads.

    The device's work is in two parts if there are states: those must not change before all indices
    are checked, so nothing in the second part is checked.
    """

    before: tuple[Step, ...]
    inside: tuple[tuple[Step, ...], ...]
    after: tuple[Step, ...]


def program_parts(steps: Sequence[Step], states: bool) -> ProgramParts | None:
    """None for programs in which the host has a part in between: it runs kernels, reads their
    results, or needs a tensor that is transferred there and back."""
    before: list[Step] = []
    inside: list[Step] = []
    after: list[Step] = []
    moved: set[tuple[str, int]] = set()
    for step in steps:
        match step:
            case MoveTensor():
                place = (step.place.kind, step.place.number)
                ends = ("input",) if step.upload else ("input", "output")
                if step.place.kind not in ends or place in moved:
                    return None
                moved.add(place)
                (before if step.upload else after).append(step)
            case ReadNumbers() if not step.symbols:
                before.append(step)
            case _ if _is_recordable(step):
                inside.append(step)
            case _:
                return None
    checked = [n for n, step in enumerate(inside, 1) if any(c.checks for c in kernel_calls([step]))]
    first = checked[-1] if checked and states else 0
    works = tuple(inside[:first]), tuple(inside[first:])
    return ProgramParts(tuple(before), tuple(filter(None, works)), tuple(after))


def host_ends(steps: Sequence[Step]) -> frozenset[End]:
    """Inputs and outputs, by their numbers, whose memory the host accesses."""
    places = chain.from_iterable(map(_host_places, steps))
    return frozenset((p.kind, p.number) for p in places if p.kind in ("input", "output"))


def brought_back(steps: Sequence[Step]) -> frozenset[End]:
    """Inputs and outputs, by their numbers, that are downloaded."""
    moves = (step.place for step in steps if isinstance(step, MoveTensor) and not step.upload)
    return frozenset((p.kind, p.number) for p in moves if p.kind in ("input", "output"))


def _host_places(step: Step) -> Iterable[DevicePlace]:
    match step:
        case KernelCall() if step.grid is None:
            return step.arguments
        case CopyMemory() if step.both:
            return step.target, step.source
        case ReadNumbers() if step.symbols:
            return (step.place,)
        case TakeSide():
            inner = chain.from_iterable(map(_host_places, (*step.then, *step.other)))
            return step.condition, *inner
        case RunLoop():
            return chain.from_iterable(map(_host_places, step.body))
        case _:
            return ()


def _is_recordable(step: Step) -> bool:
    match step:
        case KernelCall():
            return step.grid is not None
        case CopyMemory():
            return not step.both
        case DeviceLibraryCall():
            return True
        case RunLoop():
            return step.condition is None and all(map(_is_recordable, step.body))
        case _:
            return False


IndexFault = tuple[int, int]
"""The status with which an index out of range ends a run, and the index."""


@dataclass
class FaultPlaces:
    """Where checked launches of recorded work record index faults: each at its own offset in
    ``memory``, so that all are read at once."""

    memory: DeviceMemory
    launches: list[tuple[KernelCall, int]] = field(default_factory=list[tuple[KernelCall, int]])
    size: int = 0

    def place(self, step: KernelCall) -> tuple[DeviceMemory, int]:
        """The memory for the next launch."""
        offset, self.size = self.size, self.size + _place_bytes(step)
        self.launches.append((step, offset))
        return self.memory, offset

    def fault(self, noted: bytes) -> IndexFault | None:
        """The first fault in ``noted``, the contents of all places."""
        numbers = memoryview(noted).cast("q")
        found = (index_fault(step, numbers[offset // 8 :]) for step, offset in self.launches)
        return next(filter(None, found), None)


class RunEnded(Exception):  # noqa: N818 - no error: the program says so itself
    """The run ends with this status."""

    def __init__(self, status: int) -> None:
        self.status = status


def end_if(fault: IndexFault | None, arena: int) -> None:
    """Ends the run if there is a fault, whose index its caller reads from the ``arena``."""
    if fault is not None:
        status, ctypes.c_int64.from_address(arena).value = fault
        raise RunEnded(status)


def index_fault(
    step: KernelCall, noted: Sequence[int] | ctypes.Array[ctypes.c_int64]
) -> IndexFault | None:
    """The first failed check, by the beginning of ``noted``: whether it has failed, and the index,
    for each check."""
    failed = (n for n in range(step.checks) if noted[2 * n])
    return next(((step.status + n, noted[2 * n + 1]) for n in failed), None)


def fault_bytes(steps: Sequence[Step], number: Callable[[Index], int]) -> int:
    """Bytes for the faults of recorded launches, where ``number`` evaluates expressions."""
    return sum(_fault_bytes(step, number) for step in steps)


def _fault_bytes(step: Step, number: Callable[[Index], int]) -> int:
    if isinstance(step, RunLoop):
        return max(0, number(step.trips or 0)) * fault_bytes(step.body, number)
    return _place_bytes(step) if isinstance(step, KernelCall) else 0


def launches(steps: Sequence[Step], number: Callable[[Index], int]) -> int:
    """The number of commands that recordable steps issue to a device."""
    return sum(_launches(step, number) for step in steps)


def _launches(step: Step, number: Callable[[Index], int]) -> int:
    if isinstance(step, RunLoop):
        return max(0, number(step.trips or 0)) * launches(step.body, number)
    return 1


def _place_bytes(step: KernelCall) -> int:
    return -(-16 * step.checks // 256) * 256


@dataclass(frozen=True)
class RecordedCall:
    """Recorded work, and where its launches record faults (None: there are no checks)."""

    work: Recording
    faults: FaultPlaces | None


class DescribedCalls:
    """Calls of programs that use ``libraries``, which create descriptors and load kernels in the
    first call of its sizes: that cannot be recorded."""

    def __init__(self, libraries: bool) -> None:
        self._libraries = libraries
        self._known: set[Hashable] = set()

    def knows(self, key: Hashable) -> bool:
        """Whether descriptors for calls of this ``key`` exist, or are not needed."""
        return not self._libraries or key in self._known

    def is_first(self, key: Hashable) -> bool:
        """Whether there has been no call of this ``key``."""
        if not self._libraries or key in self._known:
            return False
        if len(self._known) >= MOST_RECORDED:
            self._known.clear()
        self._known.add(key)
        return True
