"""The steps of a program as the page's loader runs them: everything a number.

What runs on the host finds its tensors in memory of its own: before a step, tensors that were
written on the other side last are copied over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import checks_in, grid_loop, takes_pool
from modelcc.ir.program import CopyTensor, Launch, Program, Step
from modelcc.ir.region import Repeat
from modelcc.runtime.devices.webgpu_shaders import Shader, Shared, together
from modelcc.targets.webgpu.emitter import shader_of
from modelcc.targets.webgpu.page.places import ALIGNMENT, NOWHERE, Key, PageMemory

Json = dict[str, Any]
DEVICE, HOST = "device", "host"
FAULT_BYTES = 16
"""Of each check: whether it failed, and the index."""


@dataclass
class PageSteps:
    """Steps, the kernels that they launch and the functions of the host that they call."""

    places: PageMemory
    steps: list[Json] = field(default_factory=list[Json])
    kernels: dict[tuple[str, Shared], Shader] = field(
        default_factory=dict[tuple[str, Shared], Shader]
    )
    host: dict[str, Function] = field(default_factory=dict[str, Function])
    checks: list[Json] = field(default_factory=list[Json])


class PageWriter:
    """Writes the steps of ``program``, whose dimensions are numbers, for kernels that see
    ``piece_bytes`` of a tensor in one piece."""

    def __init__(self, program: Program, piece_bytes: int) -> None:
        self._program = program
        self._piece_bytes = piece_bytes
        self._faults = 0
        self.result = PageSteps(PageMemory(program, _fault_bytes(program)))
        self._sides: dict[Key, set[str]] = {}

    def write(self) -> PageSteps:
        """All steps."""
        env: dict[str, int] = {}
        for definition in self._program.placed.definitions:
            env[definition.symbol] = evaluate(definition.value, env)
        self._steps(self._program.steps, env)
        return self.result

    def side(self, name: str) -> str:
        """Where an output is in the end."""
        sides = self._sides.get(self.result.places.key(name, {}), {DEVICE})
        return DEVICE if DEVICE in sides else HOST

    def _steps(self, steps: Sequence[Step], env: Mapping[str, int]) -> None:
        for step in steps:
            match step:
                case Launch():
                    self._launch(step, env)
                case CopyTensor():
                    self._copy(step, env)
                case Repeat() if step.condition is None and step.trips is not None:
                    for number in range(evaluate(step.trips, env)):
                        self._steps(step.body, {**env, step.counter: number})
                case _:
                    raise ModelError(
                        f"a page runs the same steps every time, and has no {type(step).__name__}",
                        step.source,
                        "the model branches, loops or has sizes by its data: run it natively",
                    )

    def _launch(self, step: Launch, env: Mapping[str, int]) -> None:
        function = self._program.callee[step.callee]
        if not isinstance(function, Function):
            raise ModelError(f"a page calls no library, as {step.callee} does", step.source)
        sizes = [evaluate(size, env) for size in step.sizes]
        side = HOST if grid_loop(function) is None else DEVICE
        for parameter, name in zip(function.parameters, step.arguments, strict=True):
            if not parameter.mutable or name in step.partial:
                self._want(name, side, env)
        if side == DEVICE:
            self._on_device(step, function, sizes, env)
        else:
            self._on_host(step, function, sizes, env)
        for name in self._program.results(step):
            self._sides[self.result.places.key(name, env)] = {side}

    def _want(self, name: str, side: str, env: Mapping[str, int]) -> None:
        """Copy a tensor to the side where it is read."""
        places = self.result.places
        sides = self._sides.setdefault(places.key(name, env), self._given(name))
        if side in sides:
            return
        room, address = places.room(name, env), places.address(name, env)
        way = "up" if side == DEVICE else "down"
        self.result.steps.append({way: [room.buffer, room.offset, places.bytes(name), address]})
        sides.add(side)

    def _given(self, name: str) -> set[str]:
        """Inputs and constants are where they are wanted from the beginning."""
        given = self._program.placed.bindings[name].place in ("input", "constant")
        return {DEVICE, HOST} if given else {DEVICE}

    def _on_device(
        self, step: Launch, function: Function, sizes: Sequence[int], env: Mapping[str, int]
    ) -> None:
        places = self.result.places
        shared = together([places.room(name, env) for name in step.arguments])
        key = function.name, shared
        shader = self.result.kernels.get(key)
        if shader is None:
            shader = self.result.kernels[key] = shader_of(function, shared, self._piece_bytes)
        own = dict(zip(function.sizes, sizes, strict=True))
        at: list[list[int]] = []
        for span in shader.spans(own):
            room = places.room(step.arguments[span.parameter], env)
            at.append([room.buffer, room.offset + span.start, span.size])
        if shader.faults:
            at.append([0, self._note(step), 4 * shader.faults])
        groups = prod(evaluate(extent, own) for extent in shader.grid)
        number = list(self.result.kernels).index(key)
        self.result.steps.append(
            {"kernel": number, "at": at, "sizes": list(sizes), "groups": groups}
        )

    def _note(self, step: Launch) -> int:
        """Where the checks of a launch have their faults."""
        start = self._faults
        for bound in step.bounds:
            at = start + FAULT_BYTES * bound.number
            self.result.checks.append({"at": at, "where": bound.requirement()})
        self._faults += _span(self._program.callee[step.callee])
        return start

    def _on_host(
        self, step: Launch, function: Function, sizes: Sequence[int], env: Mapping[str, int]
    ) -> None:
        places = self.result.places
        self.result.host[function.name] = function
        count = checks_in(function)
        checks = [
            {"at": FAULT_BYTES * bound.number, "where": bound.requirement()}
            for bound in step.bounds
        ]
        self.result.steps.append(
            {
                "host": function.name,
                "at": [places.address(name, env) for name in step.arguments],
                "sizes": list(sizes),
                "faults": places.take(FAULT_BYTES * count) if count else NOWHERE,
                "checks": checks,
                "pool": takes_pool(function),
            }
        )

    def _copy(self, step: CopyTensor, env: Mapping[str, int]) -> None:
        places = self.result.places
        self._want(step.source_tensor, DEVICE, env)
        source, target = places.room(step.source_tensor, env), places.room(step.target, env)
        size = places.bytes(step.target)
        ends = [source.buffer, source.offset, target.buffer, target.offset]
        self.result.steps.append({"copy": [*ends, size]})
        self._sides[places.key(step.target, env)] = {DEVICE}


def _span(function: object) -> int:
    """Bytes of the faults of one launch, which begin where a binding may."""
    count = checks_in(function) if isinstance(function, Function) else 0
    return -(-FAULT_BYTES * count // ALIGNMENT) * ALIGNMENT


def _fault_bytes(program: Program) -> int:
    return sum(_span(program.callee[launch.callee]) for launch in _launches(program.steps, {}))


def _launches(steps: Sequence[Step], env: Mapping[str, int]) -> Iterator[Launch]:
    """Launches as often as they run; those of the host count, too, which does no harm."""
    for step in steps:
        if isinstance(step, Repeat) and step.trips is not None:
            trips: Index = step.trips
            for number in range(evaluate(trips, env) if isinstance(trips, int) else 0):
                yield from _launches(step.body, {**env, step.counter: number})
        elif isinstance(step, Launch):
            yield step
