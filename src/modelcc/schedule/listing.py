"""Files of schedules: one line for each distinct kernel of a model, for one machine::

machine native: 256-bit vectors, 16 registers, 1 thread

# node conv1, relu1
#   y0: tensor<1x64x56x56xf32> = [a0 < 1, …] sum[…] x0[…] * x1[…]
kernel 83f1c2d4a5b69788: tiled(vector=a1v, lanes=8, tile={a1b: 2, a3: 6}, parallel=16)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from modelcc.ir.op import ModelError
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import Schedule, ScheduleError
from modelcc.schedule.text import parse_schedule, print_schedule
from modelcc.schedule.workload import DIGITS, workload_key, workload_text

_LINE = re.compile(rf"kernel ([0-9a-f]{{{DIGITS}}}): (.*)")
_MACHINE = "machine "
NODES = 8
"""Of the nodes that share a kernel so many are named."""


@dataclass(frozen=True)
class Scheduled:
    """A distinct kernel of a model, how it runs, the nodes that it was made of, and how often the
    model calls it."""

    kernel: CanonicalKernel
    schedule: Schedule
    nodes: tuple[str, ...] = ()
    calls: int = 1


@dataclass(frozen=True)
class Listing:
    """Schedules by the keys of their workloads, for ``machine`` (empty: any)."""

    machine: str = ""
    schedules: Mapping[str, Schedule] = field(default_factory=dict[str, Schedule])
    lines: Mapping[str, int] = field(default_factory=dict[str, int])


def print_listing(machine: str, kernels: Sequence[Scheduled]) -> str:
    """The text of a file."""
    return "\n".join((f"{_MACHINE}{machine}", *map(_printed, kernels), ""))


def _printed(one: Scheduled) -> str:
    more = len(one.nodes) - NODES
    nodes = ", ".join(one.nodes[:NODES]) + (f" and {more} more" if more > 0 else "")
    notes = "\n".join(f"# {line}".rstrip() for line in _notes(nodes, one.kernel))
    return f"\n{notes}\nkernel {workload_key(one.kernel)}: {print_schedule(one.schedule)}"


def _notes(nodes: str, kernel: CanonicalKernel) -> Iterator[str]:
    yield f"node {nodes}".replace("\n", " ")
    yield from (line for line in workload_text(kernel).splitlines() if line.startswith("  "))


def parse_listing(text: str) -> Listing:
    """The schedules of a file; :class:`ModelError` names the line that is none."""
    machine = ""
    schedules: dict[str, Schedule] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = _LINE.fullmatch(line.strip())
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(_MACHINE) and not schedules:
            machine = line.removeprefix(_MACHINE).strip()
        elif found is None:
            hint = "write kernel KEY: SCHEDULE, as --emit schedule does"
            raise ModelError(f"line {number} of the schedules is none: {line.strip()!r}", (), hint)
        elif found[1] in schedules:
            before = lines[found[1]]
            raise ModelError(f"lines {before} and {number} of the schedules are for one kernel")
        else:
            try:
                schedules[found[1]] = parse_schedule(found[2])
            except ScheduleError as error:
                raise ModelError(f"line {number} of the schedules: {error}") from error
            lines[found[1]] = number
    return Listing(machine, schedules, lines)


def check_machine(listing: Listing, machine: str) -> None:
    """:class:`ModelError` if the schedules are for another machine than this."""
    if listing.machine not in ("", machine):
        hint = "delete its line if they are to be tried here nevertheless"
        raise ModelError(
            f"the schedules are for the machine {listing.machine!r} and this is {machine!r}",
            (),
            hint,
        )


def check_used(listing: Listing, used: Collection[str]) -> None:
    """:class:`ModelError` if a schedule is for none of the kernels with these keys."""
    unused = [key for key in listing.schedules if key not in used]
    if unused:
        line = listing.lines.get(unused[0], 0)
        raise ModelError(
            f"line {line} of the schedules: no kernel of this model has the key {unused[0]}",
            (),
            "schedules hang on shapes, types and options: emit them anew with the same options",
        )
