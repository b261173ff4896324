"""Files of schedules: one line for each distinct kernel of a model, for one machine::

machine native: 256-bit vectors, 16 registers, 1 thread

# node conv1, relu1
#   y0: tensor<1x64x56x56xf32> = [a0 < 1, …] sum[…] x0[…] * x1[…]
kernel 83f1c2d4a5b69788: tiled(vector=a1v, lanes=8, tile={a1b: 2, a3: 6}, parallel=16)

Further lines override the target's choice of an algorithm for a contraction (direct, or one of
fewer multiplications), and choices for the model as a whole, of its layout and its kernels::

algorithm 0a1b2c3d4e5f6071: direct
model channels: 8
model contractions: apart
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from modelcc.ir.errors import ModelError
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.schedule import Schedule, ScheduleError
from modelcc.schedule.text import parse_schedule, print_schedule
from modelcc.schedule.workload import DIGITS, workload_key, workload_text

_LINE = re.compile(rf"(?:(kernel|algorithm) ([0-9a-f]{{{DIGITS}}})|(model) ([a-z]+)): (.*)")
_MACHINE = "machine "
NODES = 8
"""Maximum number of nodes named of those that share a kernel."""
DIRECT = "direct"
"""The algorithm that computes a contraction directly."""
ALGORITHM, MODEL = "algorithm ", "model "
"""Prefixes of the key of a contraction, and of the name of a choice for the model as a whole."""
_WINOGRAD = (
    "a 3x3 convolution of stride 1 of f32 by constant weights, with channels in whole blocks"
)
ALGORITHMS: Mapping[str, str] = MappingProxyType(
    {
        DIRECT: "a contraction",
        "winograd2": _WINOGRAD,
        "winograd4": _WINOGRAD,
        "strassen": "a product of f32 by a constant that nothing else reads, of many even rows, "
        "columns in multiples of 64 and sums in multiples of 32",
    }
)
"""Algorithms that lines may select, and what they compute."""


@dataclass(frozen=True)
class Scheduled:
    """A distinct kernel of a model, its schedule, the nodes that it was made of, and its number of
    calls."""

    kernel: CanonicalKernel
    schedule: Schedule
    nodes: tuple[str, ...] = ()
    calls: int = 1


@dataclass(frozen=True)
class Listing:
    """Schedules by the keys of their workloads, for ``machine`` (empty: any), algorithms by the
    keys of contractions, and choices for the ``model`` as a whole; ``lines`` has the line number of
    each key."""

    machine: str = ""
    schedules: Mapping[str, Schedule] = field(default_factory=dict[str, Schedule])
    lines: Mapping[str, int] = field(default_factory=dict[str, int])
    algorithms: Mapping[str, str] = field(default_factory=dict[str, str])
    model: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def above(self) -> Mapping[str, str]:
        """Choices above kernels: values by the names that lines begin with."""
        named = {f"{MODEL}{name}": value for name, value in self.model.items()}
        return {**named, **{f"{ALGORITHM}{key}": word for key, word in self.algorithms.items()}}


_NOTHING: Mapping[str, str] = MappingProxyType({})


def print_listing(
    machine: str, kernels: Sequence[Scheduled], above: Mapping[str, str] = _NOTHING
) -> str:
    """The text of a file; ``above`` has values by the names that their lines begin with."""
    lines = (f"{_MACHINE}{machine}", *above_lines(above), *map(_printed, kernels), "")
    return "\n".join(lines)


def above_lines(above: Mapping[str, str]) -> list[str]:
    """One line for each contraction or model with a choice, by its key or name."""
    return [f"{name}: {value}" for name, value in sorted(above.items())]


def _printed(one: Scheduled) -> str:
    more = len(one.nodes) - NODES
    nodes = ", ".join(one.nodes[:NODES]) + (f" and {more} more" if more > 0 else "")
    notes = "\n".join(f"# {line}".rstrip() for line in _notes(nodes, one.kernel))
    return f"\n{notes}\nkernel {workload_key(one.kernel)}: {print_schedule(one.schedule)}"


def _notes(nodes: str, kernel: CanonicalKernel) -> Iterator[str]:
    yield f"node {nodes}".replace("\n", " ")
    yield from (line for line in workload_text(kernel).splitlines() if line.startswith("  "))


def parse_listing(text: str) -> Listing:
    """The schedules of a file; :class:`ModelError` names the first invalid line."""
    machine = ""
    schedules: dict[str, Schedule] = {}
    algorithms, model = dict[str, str](), dict[str, str]()
    sections = {"kernel": schedules, "algorithm": algorithms, "model": model}
    lines: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        matched = _LINE.fullmatch(line.strip())
        if not line.strip() or line.startswith("#"):
            continue
        if line.startswith(_MACHINE) and not lines:
            machine = line.removeprefix(_MACHINE).strip()
            continue
        if matched is None:
            hint = "write kernel KEY: SCHEDULE, as --emit schedule does"
            raise ModelError(f"line {number} of the schedules is none: {line.strip()!r}", (), hint)
        what, key, value = matched[1] or matched[3], matched[2] or matched[4], matched[5].strip()
        if key in sections[what]:
            raise ModelError(f"lines {lines[key]} and {number} of the schedules are for one {what}")
        lines[key] = number
        if what == "kernel":
            schedules[key] = _parsed(value, number)
        elif what == "algorithm":
            algorithms[key] = _checked_algorithm(key, value, number)
        else:
            model[key] = value
    return Listing(machine, schedules, lines, algorithms, model)


def _parsed(text: str, line: int) -> Schedule:
    try:
        return parse_schedule(text)
    except ScheduleError as error:
        raise ModelError(f"line {line} of the schedules: {error}") from error


def _checked_algorithm(key: str, word: str, line: int) -> str:
    if word not in ALGORITHMS:
        hint = f"write algorithm {key}: and one of {', '.join(ALGORITHMS)}"
        raise ModelError(f"line {line} of the schedules: {word!r} is no algorithm", (), hint)
    return word


def check_choices(listing: Listing, choices: Mapping[str, Collection[str]]) -> None:
    """Raises :class:`ModelError` if a choice for the model as a whole is not among ``choices``,
    values by names."""
    for name, value in listing.model.items():
        place, values = f"line {listing.lines[name]} of the schedules", choices.get(name)
        if values is None:
            hint = f"there are {' and '.join(choices)}"
            raise ModelError(f"{place}: {name!r} cannot be chosen for a model", (), hint)
        if value not in values:
            hint = f"write model {name}: and one of {', '.join(values)}"
            raise ModelError(f"{place}: {name} of a model cannot be {value!r}", (), hint)


def check_machine(listing: Listing, machine: str) -> None:
    """Raises :class:`ModelError` if the schedules are for another machine."""
    if listing.machine not in ("", machine):
        hint = "delete its line if they are to be tried here nevertheless"
        raise ModelError(
            f"the schedules are for the machine {listing.machine!r} and this is {machine!r}",
            (),
            hint,
        )


def check_used(listing: Listing, kernels: Collection[str], contractions: Collection[str]) -> None:
    """Raises :class:`ModelError` if a line matches none of the ``kernels`` and ``contractions``
    with these keys."""
    unused = [("kernel", key) for key in listing.schedules if key not in kernels]
    unused += [
        ("contraction", key) for key in sorted(listing.algorithms) if key not in contractions
    ]
    for what, key in unused[:1]:
        line = listing.lines.get(key, 0)
        raise ModelError(
            f"line {line} of the schedules: no {what} of this model has the key {key}",
            (),
            "schedules depend on shapes, types and options: emit them anew with the same options",
        )
