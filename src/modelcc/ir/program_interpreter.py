"""Reference interpreter of the program level: memory in NumPy, kernels by the loop interpreter.

An arena, and memory of tensors outside of it, is filled with 0xFF (NaN as floats) initially, which
exposes reads of undefined data.  Before memory is planned, tensors made by a branch or an iteration
are dropped after it, except for its outputs.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from itertools import count

import numpy as np

from modelcc.ir.dimensions import bind_dimensions, bind_type
from modelcc.ir.errors import ModelError
from modelcc.ir.index import evaluate
from modelcc.ir.library import Callee, meaning_of
from modelcc.ir.loop_interpreter import Kernel, OutOfBoundError, compile_loops
from modelcc.ir.pack import pack, unpack
from modelcc.ir.program import (
    Allocate,
    Binding,
    CopyTensor,
    Launch,
    Placement,
    Program,
    Step,
    Transfer,
)
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, View
from modelcc.ir.tensor_interpreter import check_conditions
from modelcc.ir.types import Array, NumpyType, TensorType, dtype_of


def interpret_program(program: Program, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name for inputs by name, both in logical (row-major) order.

    Raises :class:`ModelError` if an input is missing or does not fit its type.
    """
    types = {name: program.types[name] for name in program.inputs}
    _check_feeds(types, feeds)
    shapes = ((name, types[name], feeds[name].shape) for name in program.inputs)
    values = bind_dimensions(shapes, program.dims)
    placement = program.placement or Placement({})
    for definition in placement.definitions:
        values[definition.symbol] = evaluate(definition.value, values)
    memory = _Memory(program, placement, feeds, values)
    run = _Run(memory, {f.name: _kernel(f) for f in program.callees})
    run.steps(program.steps, values)
    memory.require_no_arrivals()
    return {name: memory.logical(name, values) for name in program.outputs}


_Kernel = tuple[Kernel, tuple[NumpyType, ...]]
"""A function's kernel, and the dtypes of its buffers: bytes for tensors of narrow types."""


def _kernel(callee: Callee) -> _Kernel:
    function = meaning_of(callee)
    return compile_loops(function), tuple(p.buffer.dtype.numpy for p in function.parameters)


def _check_feeds(types: Mapping[str, TensorType], feeds: Mapping[str, Array]) -> None:
    for name, type in types.items():
        if name not in feeds:
            raise ModelError(f"input {name!r} ({type}) is missing")
        if dtype_of(feeds[name]) != type.dtype:
            raise ModelError(f"input {name!r} must be {type}, but the array is {feeds[name].dtype}")


class _Run:
    """Execution of steps in a memory."""

    def __init__(self, memory: _Memory, kernels: Mapping[str, _Kernel]) -> None:
        self._memory = memory
        self._kernels = kernels

    def steps(self, steps: Iterable[Step], values: dict[str, int]) -> None:
        """Run steps; sizes that they read are added to ``values``."""
        for step in steps:
            self._step(step, values)

    def _step(self, step: Step, values: dict[str, int]) -> None:
        memory = self._memory
        match step:
            case Launch():
                self._launch(step, values)
            case View():
                memory.view(step, values)
            case CopyTensor():
                memory.copy(step.source_tensor, step.target, values)
            case ReadSize():
                numbers = memory.array(step.tensor, values)[: len(step.symbols)].tolist()
                values |= zip(step.symbols, numbers, strict=True)
                check_conditions(step, memory.dims, values)
            case Transfer():
                pass
            case Allocate():
                memory.allocate(step.name, evaluate(step.size, values))
            case Branch():
                memory.make(step.outputs, values)
                taken = step.then if memory.array(step.condition, values)[0] else step.other
                with memory:
                    self.steps(taken, dict(values))
            case Repeat():
                self._loop(step, values)

    def _launch(self, step: Launch, values: Mapping[str, int]) -> None:
        kernel, buffers = self._kernels[step.callee]
        arrays = [
            self._memory.array(name, values).view(dtype)
            for name, dtype in zip(step.arguments, buffers, strict=True)
        ]
        try:
            kernel(arrays, [evaluate(size, values) for size in step.sizes])
        except OutOfBoundError as fault:
            bound = step.bounds[fault.number]
            raise ModelError(bound.fault(fault.value, values), bound.source) from fault

    def _loop(self, loop: Repeat[Step], values: Mapping[str, int]) -> None:
        memory = self._memory
        trips = None if loop.trips is None else evaluate(loop.trips, values)
        memory.make((*(carry.last for carry in loop.carries), *loop.filled), values)
        with memory:
            for carry in loop.carries:
                memory.copy(carry.initial, carry.state, values)
            for number in count() if trips is None else range(trips):
                inside = {**values, loop.counter: number}
                if loop.condition is not None and not memory.array(loop.condition, inside)[0]:
                    break
                with memory:
                    self.steps(loop.body, inside)
                    for carry in loop.carries:
                        memory.copy(carry.next, carry.state, inside)
            for carry in loop.carries:
                memory.copy(carry.state, carry.last, values)


class _Memory:
    """Flat arrays of all tensors: views of the arena, or arrays of their own.

    As a context manager it is a region: tensors made in it are dropped after it.
    """

    def __init__(
        self,
        program: Program,
        placement: Placement,
        feeds: Mapping[str, Array],
        values: Mapping[str, int],
    ) -> None:
        self._program = program
        self._bindings = placement.bindings
        self.dims = program.dims
        self._arenas = {"": _fresh(evaluate(placement.arena, values))}
        self._own = ChainMap[str, Array]()
        replaced = frozenset(program.updated.values())
        for name in program.inputs:
            layout = program.types[name].physical
            packed = pack(feeds[name], layout).reshape(-1)
            self._own[name] = packed.copy() if name in replaced else packed
        for name, before in program.updated.items():
            self._own[name] = self._own[before]
        for name, constant in program.constants.items():
            self._own[name] = np.ascontiguousarray(constant.data).reshape(-1)
        for name in program.arrivals:
            self._own[name] = self._new(name, values)
            self._own[name][:] = 0
        self.make((n for n, b in self._bindings.items() if b.place == "output"
                   and n not in program.allocated), values)  # fmt: skip

    def __enter__(self) -> None:
        self._own = self._own.new_child()

    def __exit__(self, *_: object) -> None:
        self._own = self._own.parents

    def require_no_arrivals(self) -> None:
        """:class:`ModelError` if groups have not all arrived somewhere."""
        for name in self._program.arrivals:
            if self._own[name].any():
                raise ModelError(f"groups that arrive at {name!r} are still awaited")

    def allocate(self, name: str, size: int) -> None:
        """Memory of ``size`` bytes for an output or a segment."""
        if name in self._program.outputs:
            self._own.maps[-1][name] = _fresh(size).view(self._program.types[name].dtype.numpy)
        else:
            self._arenas[name] = _fresh(size)

    def make(self, names: Iterable[str], values: Mapping[str, int]) -> None:
        """Allocates tensors that outlive the next region, unless they exist."""
        for name in names:
            if name not in self._own:
                self._own[name] = self._new(name, values)

    def view(self, step: View, values: Mapping[str, int]) -> None:
        """Another name for a tensor's memory."""
        self._own[step.output] = self.array(step.input, values)

    def copy(self, source: str, target: str, values: Mapping[str, int]) -> None:
        """Copies the bytes of one tensor to another."""
        contents = self.array(source, values).view(np.uint8)
        self.array(target, values).view(np.uint8)[:] = contents

    def array(self, name: str, values: Mapping[str, int]) -> Array:
        """The physical elements of a tensor for loop counters ``values``."""
        binding = self._bindings.get(name)
        if binding is not None and binding.place == "arena":
            return self._in_arena(name, binding, values)
        if name not in self._own:
            self._own[name] = self._new(name, values)
        return self._own[name]

    def _new(self, name: str, values: Mapping[str, int]) -> Array:
        type = bind_type(self._program.types[name], values)
        return _fresh(evaluate(type.bytes, values)).view(type.dtype.numpy)

    def _in_arena(self, name: str, binding: Binding, values: Mapping[str, int]) -> Array:
        type = bind_type(self._program.types[name], values)
        start = evaluate(binding.offset, values)
        end = start + evaluate(type.bytes, values)
        arena = self._arenas[binding.segment]
        if start < 0 or end > len(arena):
            message = f"tensor {name!r} takes bytes {start} to {end} of an arena of {len(arena)}"
            raise ModelError(message)
        return arena[start:end].view(type.dtype.numpy)

    def logical(self, name: str, values: Mapping[str, int]) -> Array:
        """A tensor in row-major order, of its logical shape."""
        type = bind_type(self._program.types[name], values)
        return unpack(self.array(name, values), type.physical, type.static_shape())


def _fresh(size: int) -> Array:
    return np.full(size, 0xFF, np.uint8)
