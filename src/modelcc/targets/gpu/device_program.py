"""The steps of a program for a device, as the runtime reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from modelcc.ir.index import Index, evaluate, substitute
from modelcc.ir.library import Address, ExternalCall, call_of, meaning_of
from modelcc.ir.loop import Function, IndexOf, Parameter
from modelcc.ir.loop_traversal import launch_extents, launched_groups
from modelcc.ir.program import (
    Allocate,
    CopyTensor,
    Launch,
    Place,
    Program,
    Step,
    Transfer,
    checks,
    leaves,
)
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, View, size_conditions
from modelcc.passes.program.place_transfers import side_of
from modelcc.runtime.devices import device_steps as steps

DIMENSIONS = 3


def device_functions(program: Program) -> tuple[Function, ...]:
    """The kernels that run on the device, except those computed by libraries."""
    return tuple(f for f in program.functions if side_of(f) == "device")


def with_places(functions: Sequence[Function], program: Program) -> tuple[Function, ...]:
    """``functions`` whose parameters say whether every launch of a placed program binds them to
    constants, or to constants and inputs.  Other tensors are written by earlier kernels, so these
    are not prefetched."""
    bindings = program.placed.bindings
    found: dict[tuple[str, int], set[Place]] = {}
    for step in leaves(program.steps):
        if isinstance(step, Launch):
            for n, name in enumerate(step.arguments):
                found.setdefault((step.callee, n), set()).add(bindings[name].place)

    def placed(parameter: Parameter, places: set[Place]) -> Parameter:
        count = parameter.prefetched if places <= {"constant", "input"} else 0
        return replace(parameter, constant=places <= {"constant"}, prefetched=count)

    return tuple(
        replace(
            function,
            parameters=tuple(
                placed(parameter, found.get((function.name, n), set()))
                for n, parameter in enumerate(function.parameters)
            ),
        )
        for function in functions
    )


def device_program(
    program: Program, kind: str, index: int, symbol: Callable[[str], str], across: int = 0
) -> steps.DeviceProgram:
    """``program``, placed and with its transfers, for device number ``index`` of a ``kind``;
    ``symbol`` gives the names of kernels in the device's code.  A grid may have up to ``across``
    groups in its second and third dimension (0: any number)."""
    names = {c.name: symbol(c.name) for c in device_functions(program)}
    writer = _StepWriter(program, names, across)
    kernels: dict[str, tuple[int, int, int]] = {}
    for function in device_functions(program):
        _, threads = launch_extents(function)
        x, y, z = _in_three([n for n in threads if isinstance(n, int)])
        assert isinstance(x, int) and isinstance(y, int) and isinstance(z, int)
        kernels[names[function.name]] = x, y, z
    return steps.DeviceProgram(
        kind,
        index,
        writer.steps(program.steps, inside=False),
        tuple(program.dims),
        tuple((d.symbol, d.value) for d in program.placed.definitions),
        program.placed.arena,
        tuple(program.types[name].bytes for name in program.inputs),
        tuple(_size(program, name) for name in program.outputs),
        kernels,
        tuple(evaluate(program.types[name].bytes, {}) for name in program.arrivals),
    )


def _size(program: Program, name: str) -> Index:
    """Bytes of an output before the first step."""
    asked = name in program.allocated or name in program.states
    return 0 if asked else program.types[name].bytes


class _StepWriter:
    """Writes steps, and numbers their checks."""

    def __init__(self, program: Program, kernels: dict[str, str], across: int) -> None:
        self._program = program
        self._across = across
        self._kernels = kernels
        self._sizes_checked = 0
        self._status = len(checks(program)) + 1

    def steps(self, given: Sequence[Step], inside: bool) -> tuple[steps.Step, ...]:
        """Steps in their order; ``inside`` of a branch or loop, copies are made on the device, as
        are those of states and of their temporary copies."""
        return tuple(self._step(step, inside) for step in given)

    def _step(self, step: Step, inside: bool) -> steps.Step:
        match step:
            case Launch():
                return self._launch(step)
            case Transfer():
                return steps.MoveTensor(self.place(step.tensor), step.to == "device")
            case CopyTensor():
                target, source = self.place(step.target), self.place(step.source_tensor)
                own = step.target in self._program.states or target.kind == "arena"
                return steps.CopyMemory(target, source, not (inside or own))
            case ReadSize():
                return self._read(step)
            case Allocate():
                return steps.AllocateBoth(self._program.allocated.index(step.name), step.size)
            case Branch():
                then, other = self.steps(step.then, True), self.steps(step.other, True)
                return steps.TakeSide(self.place(step.condition), then, other)
            case Repeat():
                condition = None if step.condition is None else self.place(step.condition)
                return steps.RunLoop(
                    step.counter, step.trips, condition, self.steps(step.body, True)
                )
            case View():
                raise ValueError(f"view {step.output!r} has no place")

    def _library_call(self, step: Launch, call: ExternalCall) -> steps.DeviceLibraryCall:
        meaning = meaning_of(self._program.callee[step.callee])
        given = dict(zip(meaning.sizes, step.sizes, strict=True))
        names = [parameter.buffer.name for parameter in meaning.parameters]
        passed = dict(zip(names, map(self.place, step.arguments), strict=True))
        elements = {p.buffer.name: p.buffer.dtype.name for p in meaning.parameters}
        numbers: list[Index] = []
        for argument in call.arguments:
            assert isinstance(argument, Address | IndexOf)
            number = argument.offset if isinstance(argument, Address) else argument.index
            numbers.append(substitute(number, given))
        return steps.DeviceLibraryCall(
            step.callee,
            call.library,
            tuple(elements[address.buffer] for address in call.addresses),
            tuple(passed[address.buffer] for address in call.addresses),
            tuple(numbers),
        )

    def _launch(self, step: Launch) -> steps.KernelCall | steps.DeviceLibraryCall:
        places = tuple(map(self.place, step.arguments))
        first, self._status = self._status, self._status + len(step.bounds)
        call = call_of(self._program.callee[step.callee])
        if call is not None and side_of(self._program.callee[step.callee]) == "device":
            return self._library_call(step, call)
        kernel = self._kernels.get(step.callee)
        if kernel is None:
            count = len(step.bounds)
            return steps.KernelCall(step.callee, places, step.sizes, None, count, first)
        function = meaning_of(self._program.callee[step.callee])
        given = dict(zip(function.sizes, step.sizes, strict=True))
        groups = launched_groups(launch_extents(function)[0], self._across)
        grid = _in_three([substitute(n, given) for n in groups])
        return steps.KernelCall(kernel, places, step.sizes, grid, len(step.bounds), first)

    def _read(self, step: ReadSize) -> steps.ReadNumbers:
        conditions: list[tuple[steps.Condition, int]] = []
        for condition in size_conditions(step, self._program.dims):
            self._sizes_checked += 1
            conditions.append((condition, self._sizes_checked))
        return steps.ReadNumbers(self.place(step.tensor), tuple(step.symbols), tuple(conditions))

    def place(self, name: str) -> steps.DevicePlace:
        """The device location of a tensor."""
        program = self._program
        binding, size = program.placed.bindings[name], program.types[name].bytes
        if name in program.allocated:
            return steps.DevicePlace("segment", program.allocated.index(name), 0, size)
        if binding.segment:
            number = program.allocated.index(binding.segment)
            return steps.DevicePlace("segment", number, binding.offset, size)
        if binding.place == "arena":
            return steps.DevicePlace("arena", 0, binding.offset, size)
        return steps.DevicePlace(binding.place, program.position(name), binding.offset, size)


def _in_three(extents: Sequence[Index]) -> tuple[Index, Index, Index]:
    x, y, z = (*extents, *(1 for _ in range(DIMENSIONS - len(extents))))
    return x, y, z
