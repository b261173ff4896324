"""Files of schedules: one line for each distinct kernel of a model, for one machine::

machine native: 256-bit vectors, 16 registers, 1 thread

# node conv1, relu1
#   y0: tensor<1x64x56x56xf32> = [a0 < 1, …] sum[…] x0[…] * x1[…]
kernel 83f1c2d4a5b69788: tiled(vector=a1v, lanes=8, tile={a1b: 2, a3: 6}, parallel=16)

Contractions that the target computes by an algorithm of fewer multiplications where it expects a
gain may be computed as they are instead::

algorithm 0a1b2c3d4e5f6071: direct
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

_LINE = re.compile(rf"(kernel|algorithm) ([0-9a-f]{{{DIGITS}}}): (.*)")
_MACHINE = "machine "
NODES = 8
"""Of the nodes that share a kernel so many are named."""
DIRECT = "direct"
"""The algorithm that a line may ask for."""


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
    """Schedules by the keys of their workloads, for ``machine`` (empty: any), and the keys of
    contractions that are computed ``direct`` ly; ``lines`` are those of all keys."""

    machine: str = ""
    schedules: Mapping[str, Schedule] = field(default_factory=dict[str, Schedule])
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    direct: frozenset[str] = frozenset()


def print_listing(machine: str, kernels: Sequence[Scheduled], direct: Collection[str] = ()) -> str:
    """The text of a file."""
    algorithms = algorithm_lines(direct)
    return "\n".join((f"{_MACHINE}{machine}", *algorithms, *map(_printed, kernels), ""))


def algorithm_lines(direct: Collection[str]) -> list[str]:
    """One for each contraction that is computed directly, by its key."""
    return [f"algorithm {key}: {DIRECT}" for key in sorted(direct)]


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
    direct: set[str] = set()
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = _LINE.fullmatch(line.strip())
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(_MACHINE) and not lines:
            machine = line.removeprefix(_MACHINE).strip()
        elif found is None:
            hint = "write kernel KEY: SCHEDULE, as --emit schedule does"
            raise ModelError(f"line {number} of the schedules is none: {line.strip()!r}", (), hint)
        elif found[2] in (direct if found[1] == "algorithm" else schedules):
            before, what = lines[found[2]], found[1]
            raise ModelError(f"lines {before} and {number} of the schedules are for one {what}")
        else:
            lines[found[2]] = number
            if found[1] == "algorithm":
                direct.add(_checked_direct(found[2], found[3], number))
            else:
                schedules[found[2]] = _parsed(found[3], number)
    return Listing(machine, schedules, lines, frozenset(direct))


def _parsed(text: str, line: int) -> Schedule:
    try:
        return parse_schedule(text)
    except ScheduleError as error:
        raise ModelError(f"line {line} of the schedules: {error}") from error


def _checked_direct(key: str, word: str, line: int) -> str:
    if word != DIRECT:
        hint = f"write algorithm {key}: {DIRECT}"
        raise ModelError(f"line {line} of the schedules: {word!r} is no algorithm", (), hint)
    return key


def check_machine(listing: Listing, machine: str) -> None:
    """:class:`ModelError` if the schedules are for another machine than this."""
    if listing.machine not in ("", machine):
        hint = "delete its line if they are to be tried here nevertheless"
        raise ModelError(
            f"the schedules are for the machine {listing.machine!r} and this is {machine!r}",
            (),
            hint,
        )


def check_used(listing: Listing, kernels: Collection[str], contractions: Collection[str]) -> None:
    """:class:`ModelError` if a line is for none of the ``kernels`` and ``contractions`` with these
    keys."""
    unused = [("kernel", key) for key in listing.schedules if key not in kernels]
    unused += [("contraction", key) for key in sorted(listing.direct) if key not in contractions]
    for what, key in unused[:1]:
        line = listing.lines.get(key, 0)
        raise ModelError(
            f"line {line} of the schedules: no {what} of this model has the key {key}",
            (),
            "schedules hang on shapes, types and options: emit them anew with the same options",
        )
