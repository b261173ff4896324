"""Reference interpreter of the program level: an arena in NumPy, kernels by the loop interpreter.

The arena starts full of 0xFF (NaN as floats), so that reading what no step has written shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np

from modelcc.ir.dimensions import bind_dimensions, bind_type
from modelcc.ir.errors import ModelError
from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_interpreter import Kernel, OutOfBoundError, compile_loops
from modelcc.ir.pack import pack, unpack
from modelcc.ir.program import (
    Allocate,
    CopyTensor,
    Launch,
    Program,
    Step,
)
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize
from modelcc.ir.tensor_interpreter import check_conditions
from modelcc.ir.types import Array, TensorType, dtype_of


def interpret_program(program: Program, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name for inputs by name, both in logical (row-major) order.

    Raises :class:`ModelError` if an input is missing or does not fit its type.
    """
    types = {name: program.bindings[name].type for name in program.inputs}
    _check_feeds(types, feeds)
    shapes = ((name, types[name], feeds[name].shape) for name in program.inputs)
    values = bind_dimensions(shapes, program.dims)
    for definition in program.definitions:
        values[definition.symbol] = evaluate(definition.value, values)
    memory = _Memory(program, feeds, values)
    kernels = {f.name: _kernel(f) for f in program.functions}
    for step in program.steps:
        _run_step(step, kernels, memory, values)
    return {name: memory.logical(name, values) for name in program.outputs}


_Kernel = tuple[Kernel, tuple[np.dtype[Any], ...]]
"""What runs a function, and the dtypes of its buffers: bytes where a tensor's are narrow."""


def _kernel(function: Function) -> _Kernel:
    return compile_loops(function), tuple(p.buffer.dtype.numpy for p in function.parameters)


def _check_feeds(types: Mapping[str, TensorType], feeds: Mapping[str, Array]) -> None:
    for name, type in types.items():
        if name not in feeds:
            raise ModelError(f"input {name!r} ({type}) is missing")
        if dtype_of(feeds[name]) != type.dtype:
            raise ModelError(f"input {name!r} must be {type}, but the array is {feeds[name].dtype}")


def _run_step(
    step: Step, kernels: Mapping[str, _Kernel], memory: _Memory, values: dict[str, int]
) -> None:
    """Run a step; sizes that it reads are added to ``values``."""
    match step:
        case Launch():
            kernel, buffers = kernels[step.function]
            arrays = [
                memory.array(name, values).view(dtype)
                for name, dtype in zip(step.arguments, buffers, strict=True)
            ]
            try:
                kernel(arrays, [evaluate(size, values) for size in step.sizes])
            except OutOfBoundError as fault:
                bound = step.bounds[fault.number]
                raise ModelError(bound.fault(fault.value, values), bound.source) from fault
        case CopyTensor():
            source = memory.array(step.source_tensor, values).view(np.uint8)
            memory.array(step.target, values).view(np.uint8)[:] = source
        case ReadSize():
            numbers = memory.array(step.tensor, values)[: len(step.symbols)].tolist()
            values |= zip(step.symbols, numbers, strict=True)
            check_conditions(step, memory.dims, values)
        case Allocate():
            memory.allocate(step.name, evaluate(step.size, values))
        case Branch():
            inside = dict(values)
            taken = step.then if memory.array(step.condition, values)[0] else step.other
            for inner in taken:
                _run_step(inner, kernels, memory, inside)
        case Repeat():
            _run_loop(step, kernels, memory, values)


def _run_loop(
    loop: Repeat[Step], kernels: Mapping[str, _Kernel], memory: _Memory, values: Mapping[str, int]
) -> None:
    trips = None if loop.trips is None else evaluate(loop.trips, values)
    for number in count() if trips is None else range(trips):
        inside = {**values, loop.counter: number}
        if loop.condition is not None and not memory.array(loop.condition, inside)[0]:
            break
        for step in loop.body:
            _run_step(step, kernels, memory, inside)


class _Memory:
    """Flat arrays of all bindings; those in the arena are views of it."""

    def __init__(
        self, program: Program, feeds: Mapping[str, Array], values: Mapping[str, int]
    ) -> None:
        self._program = program
        self.dims = program.dims
        self._arenas = {"": np.full(evaluate(program.arena, values), 0xFF, np.uint8)}
        self._own: dict[str, Array] = {}
        for name in program.inputs:
            layout = program.bindings[name].type.physical
            self._own[name] = pack(feeds[name], layout).reshape(-1)
        for name, constant in program.constants.items():
            self._own[name] = np.ascontiguousarray(constant.data).reshape(-1)
        for name in program.outputs:
            if name not in program.allocated:
                self.allocate(name, evaluate(program.bindings[name].type.bytes, values))

    def allocate(self, name: str, size: int) -> None:
        """Memory of ``size`` bytes for an output or a segment."""
        fresh = np.full(size, 0xFF, np.uint8)
        if name in self._program.outputs:
            self._own[name] = fresh.view(self._program.bindings[name].type.dtype.numpy)
        else:
            self._arenas[name] = fresh

    def array(self, name: str, values: Mapping[str, int]) -> Array:
        """The physical elements of a tensor where loops have got to ``values``."""
        binding = self._program.bindings[name]
        if binding.place != "arena":
            return self._own[name]
        start = evaluate(binding.offset, values)
        size = evaluate(bind_type(binding.type, values).bytes, values)
        arena = self._arenas[binding.segment]
        if start < 0 or start + size > len(arena):
            raise ModelError(
                f"tensor {name!r} takes bytes {start} to {start + size} of an arena of {len(arena)}"
            )
        return arena[start : start + size].view(binding.type.dtype.numpy)

    def logical(self, name: str, values: Mapping[str, int]) -> Array:
        """A tensor in row-major order, of its logical shape."""
        type = bind_type(self._program.bindings[name].type, values)
        return unpack(self.array(name, values), type.physical, type.static_shape())
