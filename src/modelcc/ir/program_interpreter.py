"""Reference interpreter of the program level: an arena in NumPy, kernels by the loop interpreter.

The arena starts full of 0xFF (NaN as floats), so that reading what no step has written shows.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from modelcc.ir.dimensions import bind_dimensions, bind_type
from modelcc.ir.index import evaluate
from modelcc.ir.loop_interpreter import Kernel, compile_loops
from modelcc.ir.op import ModelError
from modelcc.ir.pack import pack, unpack
from modelcc.ir.program import Binding, CopyTensor, Launch, Program, Step
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
    kernels = {f.name: compile_loops(f) for f in program.functions}
    for step in program.steps:
        _run_step(step, kernels, memory, values)
    return {name: memory.logical(name) for name in program.outputs}


def _check_feeds(types: Mapping[str, TensorType], feeds: Mapping[str, Array]) -> None:
    for name, type in types.items():
        if name not in feeds:
            raise ModelError(f"input {name!r} ({type}) is missing")
        if dtype_of(feeds[name]) != type.dtype:
            raise ModelError(f"input {name!r} must be {type}, but the array is {feeds[name].dtype}")


def _run_step(
    step: Step, kernels: Mapping[str, Kernel], memory: _Memory, values: Mapping[str, int]
) -> None:
    match step:
        case Launch():
            arrays = [memory.array(name) for name in step.arguments]
            kernels[step.function](arrays, [evaluate(size, values) for size in step.sizes])
        case CopyTensor():
            source = memory.array(step.source_tensor).view(np.uint8)
            memory.array(step.target).view(np.uint8)[:] = source


class _Memory:
    """Flat arrays of all bindings; those in the arena are views of it."""

    def __init__(
        self, program: Program, feeds: Mapping[str, Array], values: Mapping[str, int]
    ) -> None:
        self._program = program
        self._values = values
        self._arena = np.full(evaluate(program.arena, values), 0xFF, np.uint8)
        self._own: dict[str, Array] = {}
        for name in program.inputs:
            layout = program.bindings[name].type.physical
            self._own[name] = pack(feeds[name], layout).reshape(-1)
        for name, constant in program.constants.items():
            self._own[name] = np.ascontiguousarray(constant.data).reshape(-1)
        for name in program.outputs:
            type = self._type(program.bindings[name])
            size = evaluate(type.physical.size(type.shape), values)
            self._own[name] = np.full(size * type.dtype.bytes, 0xFF, np.uint8).view(
                type.dtype.numpy
            )

    def array(self, name: str) -> Array:
        """The physical elements of a tensor."""
        binding = self._program.bindings[name]
        if binding.place != "arena":
            return self._own[name]
        start = evaluate(binding.offset, self._values)
        size = evaluate(self._type(binding).bytes, self._values)
        if start < 0 or start + size > len(self._arena):
            raise ModelError(
                f"tensor {name!r} takes bytes {start} to {start + size} of an arena of "
                f"{len(self._arena)}"
            )
        return self._arena[start : start + size].view(binding.type.dtype.numpy)

    def logical(self, name: str) -> Array:
        """A tensor in row-major order, of its logical shape."""
        type = self._type(self._program.bindings[name])
        return unpack(self.array(name), type.physical, type.static_shape())

    def _type(self, binding: Binding) -> TensorType:
        return bind_type(binding.type, self._values)
