"""The steps of a program for a device as data, and as the JSON of artifacts.

Offsets, sizes and extents are index expressions of the model's dimensions, its definitions, sizes
that were read, and the counters of surrounding loops.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from modelcc.ir.condition import COMPARISONS, Condition
from modelcc.ir.index import Index, parse_index

Kind: TypeAlias = Literal["input", "output", "constant", "arrivals", "arena", "segment"]


End: TypeAlias = tuple[str, int]
"""``"input"`` or ``"output"``, and its number."""


@dataclass(frozen=True)
class DevicePlace:
    """``size`` bytes of a tensor: ``offset`` bytes after the start of the arena, or of an input,
    output, constant, arrival counters or an allocation by its ``number``."""

    kind: Kind
    number: int
    offset: Index
    size: Index


@dataclass(frozen=True)
class KernelCall:
    """Runs ``kernel`` on tensors: by ``grid`` groups on the device, or with None on the host.

    It has ``checks`` of indices; the run ends with ``status`` if the first one fails, and with the
    following numbers for the others.
    """

    kernel: str
    arguments: tuple[DevicePlace, ...]
    sizes: tuple[Index, ...]
    grid: tuple[Index, ...] | None
    checks: int = 0
    status: int = 0


@dataclass(frozen=True)
class DeviceLibraryCall:
    """A call of a ``library`` on the device instead of a kernel called ``name``: on tensors with
    ``elements`` of these types, with ``numbers`` as the library's module defines them."""

    name: str
    library: str
    elements: tuple[str, ...]
    arguments: tuple[DevicePlace, ...]
    numbers: tuple[Index, ...]


@dataclass(frozen=True)
class MoveTensor:
    """Transfers a tensor to the device, or from it."""

    place: DevicePlace
    upload: bool


@dataclass(frozen=True)
class CopyMemory:
    """Copies a tensor on the device; on the host, too, if it may be valid there."""

    target: DevicePlace
    source: DevicePlace
    both: bool


@dataclass(frozen=True)
class ReadNumbers:
    """Reads symbols from a tensor on the host; the run ends with the status of a condition that
    does not hold."""

    place: DevicePlace
    symbols: tuple[str, ...]
    conditions: tuple[tuple[Condition, int], ...]


@dataclass(frozen=True)
class AllocateBoth:
    """Allocates memory of this number on both sides."""

    number: int
    size: Index


@dataclass(frozen=True)
class TakeSide:
    """One of two blocks, by a bool on the host."""

    condition: DevicePlace
    then: tuple[Step, ...]
    other: tuple[Step, ...]


@dataclass(frozen=True)
class RunLoop:
    """Iterations before ``trips``, and while a bool on the device holds."""

    counter: str
    trips: Index | None
    condition: DevicePlace | None
    body: tuple[Step, ...]


Step: TypeAlias = (
    KernelCall
    | DeviceLibraryCall
    | MoveTensor
    | CopyMemory
    | ReadNumbers
    | AllocateBoth
    | TakeSide
    | RunLoop
)


def is_the_devices(step: Step) -> bool:
    """Whether a step runs entirely on the device."""
    return isinstance(step, MoveTensor | CopyMemory | DeviceLibraryCall) or (
        isinstance(step, KernelCall) and step.grid is not None
    )


def step_name(step: Step) -> str:
    """Its name in a trace."""
    match step:
        case KernelCall():
            return step.kernel
        case DeviceLibraryCall():
            return step.name
        case MoveTensor():
            return "upload" if step.upload else "download"
        case _:
            return type(step).__name__


def kernel_calls(steps: Sequence[Step]) -> list[KernelCall]:
    """Kernel calls of all blocks."""
    found: list[KernelCall] = []
    for step in steps:
        match step:
            case KernelCall():
                found.append(step)
            case TakeSide():
                found += kernel_calls((*step.then, *step.other))
            case RunLoop():
                found += kernel_calls(step.body)
            case _:
                pass
    return found


def library_names(steps: Sequence[Step]) -> frozenset[str]:
    """The libraries that steps of all blocks call on the device."""
    found: set[str] = set()
    for step in steps:
        match step:
            case DeviceLibraryCall():
                found.add(step.library)
            case TakeSide():
                found |= library_names((*step.then, *step.other))
            case RunLoop():
                found |= library_names(step.body)
            case _:
                pass
    return frozenset(found)


@dataclass(frozen=True)
class DeviceProgram:
    """What runs on device number ``index`` of a ``kind``: steps, names of the entry point's sizes,
    their definitions, the threads of a group of each kernel, and the bytes of each buffer of
    arrival counters, all 0 before a run."""

    kind: str
    index: int
    steps: tuple[Step, ...]
    sizes: tuple[str, ...]
    definitions: tuple[tuple[str, Index], ...]
    arena: Index
    inputs: tuple[Index, ...]
    outputs: tuple[Index, ...]
    kernels: Mapping[str, tuple[int, int, int]]
    arrivals: tuple[int, ...] = ()


def to_json(program: DeviceProgram) -> str:
    """Deterministic text."""
    data = {
        "kind": program.kind,
        "index": program.index,
        "sizes": program.sizes,
        "definitions": [[name, _number(value)] for name, value in program.definitions],
        "arena": _number(program.arena),
        "inputs": _numbers(program.inputs),
        "outputs": _numbers(program.outputs),
        "kernels": dict(program.kernels),
        "arrivals": program.arrivals,
        "steps": [_step(step) for step in program.steps],
    }
    return json.dumps(data, separators=(",", ":")) + "\n"


def from_json(text: str) -> DeviceProgram:
    """The inverse of :func:`to_json`; for other texts, it raises any of Python's errors."""
    data: dict[str, Any] = json.loads(text)
    return DeviceProgram(
        data["kind"],
        data["index"],
        tuple(map(_read_step, data["steps"])),
        tuple(data["sizes"]),
        tuple((name, _index(value)) for name, value in data["definitions"]),
        _index(data["arena"]),
        _indices(data["inputs"]),
        _indices(data["outputs"]),
        {name: (x, y, z) for name, (x, y, z) in data["kernels"].items()},
        tuple(data["arrivals"]),
    )


def _step(step: Step) -> list[Any]:
    match step:
        case KernelCall():
            grid = None if step.grid is None else _numbers(step.grid)
            arguments = [_place(place) for place in step.arguments]
            sizes = _numbers(step.sizes)
            return ["launch", step.kernel, arguments, sizes, grid, step.checks, step.status]
        case DeviceLibraryCall():
            arguments = [_place(place) for place in step.arguments]
            return ["library", step.name, step.library, step.elements, arguments,
                    _numbers(step.numbers)]  # fmt: skip
        case MoveTensor():
            return ["move", _place(step.place), step.upload]
        case CopyMemory():
            return ["copy", _place(step.target), _place(step.source), step.both]
        case ReadNumbers():
            conditions = [
                [_number(c.left), c.comparison, _number(c.right), status]
                for c, status in step.conditions
            ]
            return ["read", _place(step.place), step.symbols, conditions]
        case AllocateBoth():
            return ["allocate", step.number, _number(step.size)]
        case TakeSide():
            then, other = map(_step, step.then), map(_step, step.other)
            return ["branch", _place(step.condition), [*then], [*other]]
        case RunLoop():
            trips = None if step.trips is None else _number(step.trips)
            condition = None if step.condition is None else _place(step.condition)
            return ["loop", step.counter, trips, condition, [*map(_step, step.body)]]


def _read_step(data: list[Any]) -> Step:
    match data:
        case ["launch", kernel, arguments, sizes, grid, checks, status]:
            given = tuple(map(_read_place, arguments))
            groups = None if grid is None else _indices(grid)
            return KernelCall(kernel, given, _indices(sizes), groups, checks, status)
        case ["library", name, library, elements, arguments, numbers]:
            places = tuple(map(_read_place, arguments))
            return DeviceLibraryCall(name, library, tuple(elements), places, _indices(numbers))
        case ["move", place, upload]:
            return MoveTensor(_read_place(place), upload)
        case ["copy", target, source, both]:
            return CopyMemory(_read_place(target), _read_place(source), both)
        case ["read", place, symbols, conditions]:
            known = tuple(
                (Condition(_index(left), COMPARISONS[comparison], _index(right)), status)
                for left, comparison, right, status in conditions
            )
            return ReadNumbers(_read_place(place), tuple(symbols), known)
        case ["allocate", number, size]:
            return AllocateBoth(number, _index(size))
        case ["branch", condition, then, other]:
            sides = tuple(map(_read_step, then)), tuple(map(_read_step, other))
            return TakeSide(_read_place(condition), *sides)
        case ["loop", counter, trips, condition, body]:
            last = None if trips is None else _index(trips)
            held = None if condition is None else _read_place(condition)
            return RunLoop(counter, last, held, tuple(map(_read_step, body)))
        case _:
            raise ValueError(f"{data[0]!r} is no step")


def _place(place: DevicePlace) -> list[Any]:
    return [place.kind, place.number, _number(place.offset), _number(place.size)]


def _read_place(data: list[Any]) -> DevicePlace:
    kind, number, offset, size = data
    return DevicePlace(kind, number, _index(offset), _index(size))


def _number(value: Index) -> int | str:
    return value if isinstance(value, int) else str(value)


def _numbers(values: tuple[Index, ...]) -> list[int | str]:
    return [_number(value) for value in values]


def _index(value: int | str) -> Index:
    return value if isinstance(value, int) else parse_index(value)


def _indices(values: list[int | str]) -> tuple[Index, ...]:
    return tuple(map(_index, values))
