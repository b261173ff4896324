"""Runs scheduled programs kernel by kernel on buffers that show stray reads and writes.

Every buffer lies between guard bytes that must stay as they are.  Guards, padding of blocked
layouts and what no kernel has written yet are all ones bit by bit: NaN in every float type.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from machines import chosen_machine

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_interpreter import compile_loops
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.loop_verifier import verify_functions
from modelcc.ir.pack import pack, unpack
from modelcc.ir.program import Launch, Program
from modelcc.ir.tensor import View
from modelcc.ir.types import Array, TensorType
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.passes.loop.expand_math import expand_math
from modelcc.passes.loop.expand_narrow import expand_narrow
from modelcc.runtime.loader import load_objects
from modelcc.targets.isa.table import lanes_of
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.native.emission import emission
from modelcc.targets.native.toolchain import CodegenOptions, compile_llvm

Executor = Callable[[str, Sequence[Array], Sequence[int]], None]
"""Runs the function of this name on physical buffers and sizes."""

GUARD = 256
"""Bytes on each side of a buffer; the largest vector has 64."""


def functions_of(program: Program) -> list[Function]:
    """Every function once, verified."""
    verify_functions(program.functions)
    return list(program.functions)


def interpreted(program: Program) -> Executor:
    """The loop level's meaning; out-of-range accesses raise ``IndexError``."""
    kernels = {f.name: compile_loops(f) for f in functions_of(program)}
    return lambda name, arrays, sizes: kernels[name](arrays, sizes)


def native(program: Program) -> Executor:
    """Machine code of the processor to test, parallel loops on one thread."""
    machine = chosen_machine()
    options = emission(machine)
    available = lanes_of(options.instructions.encodings)
    plain = (expand_math(expand_narrow(f)) for f in functions_of(program))
    functions = {f.name: expand_instructions(f, available) for f in plain}
    text = emit_llvm(list(functions.values()), options)
    obj = compile_llvm(text, machine, CodegenOptions(optimize=1))
    code = load_objects([obj], {"mcc_parallel_for": 1})

    def run(name: str, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        values: list[ctypes.c_void_p | ctypes.c_int64] = []
        values += [ctypes.c_void_p(a.ctypes.data) for a in arrays]
        values += [ctypes.c_int64(s) for s in sizes]
        if parallel_loop(functions[name]):
            values.append(ctypes.c_void_p(None))
        ctypes.CFUNCTYPE(None, *(type(v) for v in values))(code.address(name))(*values)

    return run


@dataclass(frozen=True, eq=False)
class Guarded:
    """Memory for one tensor between guard bytes."""

    whole: Array
    array: Array

    @staticmethod
    def of(shape: Sequence[int], dtype: np.dtype) -> Guarded:
        size = prod(shape) * dtype.itemsize
        whole = np.full(size + 2 * GUARD + 64, 0xFF, np.uint8)
        start = GUARD + -(whole.ctypes.data + GUARD) % 64
        return Guarded(whole, whole[start : start + size].view(dtype).reshape(shape))

    @property
    def intact(self) -> bool:
        start = self.array.ctypes.data - self.whole.ctypes.data
        before, after = self.whole[:start], self.whole[start + self.array.nbytes :]
        return bool((before == 0xFF).all() and (after == 0xFF).all())


def physical_shape(type_: TensorType, sizes: Mapping[str, int]) -> list[int]:
    return [evaluate(d, sizes) for d in type_.physical.physical_shape(type_.shape)]


def logical_shape(type_: TensorType, sizes: Mapping[str, int]) -> list[int]:
    return [evaluate(d, sizes) for d in type_.shape]


def defined(type_: TensorType, shape: Sequence[int]) -> Array:
    """Whether an element of the physical buffer is one of the tensor or of its border."""
    layout = type_.physical
    bordered = [n + b + a for n, (b, a) in zip(shape, layout.halo, strict=True)]
    return pack(np.ones(bordered, np.bool_), replace(layout, halo=((0, 0),) * layout.rank))


def poisoned(array: Array, type_: TensorType) -> Array:
    """``array`` in its layout: zeros in the border, all ones in the padding."""
    result = pack(array, type_.physical)
    result[~defined(type_, array.shape)] = np.full(result.itemsize, 0xFF, np.uint8).view(
        result.dtype
    )[0]
    return result


def run_scheduled(
    program: Program,
    execute: Executor,
    inputs: Mapping[str, Array],
    sizes: Mapping[str, int],
    in_place: bool = False,
) -> dict[str, Array]:
    """The logical outputs of ``program``.

    With ``in_place``, results overwrite operands wherever a kernel allows it and nobody reads
    the operand later.
    """
    memory = _Memory(program, sizes)
    for name, constant in program.constants.items():
        # Packed constants are physical already.
        memory.fill(name, np.ascontiguousarray(constant.data))
    for name in program.arrivals:
        memory.get(name).array[...] = 0
    for name in program.inputs:
        memory.fill(name, poisoned(inputs[name], program.types[name]))
    last = _last_reads(program)
    for position, item in enumerate(program.steps):
        if isinstance(item, View):
            memory.view(item)
            continue
        assert isinstance(item, Launch)
        free = {name for name, end in last.items() if in_place and end == position}
        for output, source in item.in_place:
            if source in free and output not in memory.buffers:
                memory.share(output, source)
                free.remove(source)
        buffers = [memory.get(name) for name in item.arguments]
        values = [evaluate(s, sizes) for s in item.sizes]
        execute(item.callee, [b.array for b in buffers], values)
        for name, buffer in zip(item.arguments, buffers, strict=True):
            assert buffer.intact, f"{item.callee} writes around {name}"
    assert not any(memory.get(name).array.any() for name in program.arrivals)
    return {name: memory.logical(name) for name in program.outputs}


def _last_reads(program: Program) -> dict[str, int]:
    """Position of the last item that reads a tensor, where that is known to be the last use."""
    last: dict[str, int] = {}
    kept = {*program.outputs, *program.constants}
    for position, item in enumerate(program.steps):
        if isinstance(item, View):
            kept |= {item.input, item.output}
            continue
        assert isinstance(item, Launch)
        for name in item.arguments:
            last[name] = position
    return {name: position for name, position in last.items() if name not in kept}


class _Memory:
    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        self.program = program
        self.sizes = sizes
        self.buffers: dict[str, Guarded] = {}

    def get(self, name: str) -> Guarded:
        if name not in self.buffers:
            type_ = self.program.types[name]
            self.buffers[name] = Guarded.of(physical_shape(type_, self.sizes), type_.dtype.numpy)
        return self.buffers[name]

    def fill(self, name: str, physical: Array) -> None:
        self.get(name).array.reshape(-1)[...] = physical.reshape(-1)

    def share(self, name: str, other: str) -> None:
        self.buffers[name] = self.get(other)

    def view(self, item: View) -> None:
        base, type_ = self.get(item.input), self.program.types[item.output]
        shape = physical_shape(type_, self.sizes)
        self.buffers[item.output] = Guarded(base.whole, base.array.reshape(shape))

    def logical(self, name: str) -> Array:
        type_ = self.program.types[name]
        array = self.get(name).array.reshape(physical_shape(type_, self.sizes))
        result = unpack(array, type_.physical, logical_shape(type_, self.sizes))
        present = defined(type_, result.shape)
        border = np.array_equal(
            array[present], pack(result, type_.physical)[present], equal_nan=True
        )
        assert border, f"the border of {name} is not zero"
        return result
