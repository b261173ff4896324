"""Runs loop functions compiled through LLVM on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np
from loop_programs import aligned

from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.runtime.loader import NativeCode, load_objects
from modelcc.runtime.pool import ThreadPool
from modelcc.targets.llvm.emitter import EmitOptions, emit_llvm
from modelcc.targets.native.machine import byte_dots, function_attributes, host_machine
from modelcc.targets.native.toolchain import compile_llvm


def compiled(
    functions: Sequence[Function], pool: ThreadPool | None = None, widest_dot: int = 512
) -> NativeCode:
    """The functions as machine code in this process; byte dots of up to ``widest_dot`` bits."""
    machine = host_machine()
    dots = min(widest_dot, byte_dots(machine))
    text = emit_llvm(functions, EmitOptions(function_attributes(machine), byte_dots=dots))
    symbols = {"mcc_parallel_for": pool.parallel_for_address} if pool else {}
    return load_objects([compile_llvm(text, machine)], symbols)


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
