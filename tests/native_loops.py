"""Runs loop functions compiled through LLVM on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from loop_programs import aligned
from machines import chosen_machine

from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.passes.loop.expand_instructions import expand_instructions
from modelcc.runtime.loader import NativeCode, load_objects
from modelcc.runtime.pool import ThreadPool
from modelcc.targets.isa.table import lanes_of
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.llvm.instructions import Instructions
from modelcc.targets.llvm.parallel import PARALLEL_FOR
from modelcc.targets.native.emission import emission
from modelcc.targets.native.toolchain import compile_llvm


def compiled(
    functions: Sequence[Function],
    pool: ThreadPool | None = None,
    instructions: Instructions | None = None,
) -> NativeCode:
    """The functions as machine code in this process, with ``instructions`` instead of all."""
    symbols = {PARALLEL_FOR: pool.parallel_for_address} if pool else {}
    return load_objects(build(functions, instructions), symbols)


def build(functions: Sequence[Function], instructions: Instructions | None = None) -> list[bytes]:
    """The functions as an object file."""
    machine = chosen_machine()
    options = emission(machine)
    if instructions is not None:
        options = replace(options, instructions=instructions)
    available = lanes_of(options.instructions.encodings)
    legal = [expand_instructions(function, available) for function in functions]
    return [compile_llvm(emit_llvm(legal, options), machine)]


def call(
    code: NativeCode,
    function: Function,
    arguments: dict[str, np.ndarray],
    sizes: Mapping[str, int],
    pool: ThreadPool | None = None,
) -> None:
    """Run a function; arrays of mutable parameters get the result."""
    buffers = {p.buffer.name: aligned(arguments[p.buffer.name]) for p in function.parameters}
    values = [ctypes.c_void_p(b.ctypes.data) for b in buffers.values()]
    values += [ctypes.c_int64(sizes[name]) for name in function.sizes]
    if parallel_loop(function):
        values.append(ctypes.c_void_p(pool.address if pool else None))
    ctypes.CFUNCTYPE(None, *(type(v) for v in values))(code.address(function.name))(*values)
    for name, buffer in buffers.items():
        arguments[name][...] = buffer
