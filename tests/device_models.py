"""Models for devices, with their kernels as functions on the host's memory: interpreted."""

from __future__ import annotations

import ctypes
from math import prod

import numpy as np
from cuda_driver import Kernel

from modelcc.artifact.file import Artifact
from modelcc.driver import NOWHERE, ModelSource, compile_model
from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_interpreter import OutOfBoundError, compile_loops
from modelcc.ir.loop_traversal import checks_in, launch_extents
from modelcc.ir.program import Program
from modelcc.ir.types import Array
from modelcc.options import Options
from modelcc.pipeline import StageRun
from modelcc.targets.c.names import symbol
from modelcc.targets.gpu.device_program import device_functions


def interpreted(function: Function) -> tuple[Kernel, int, int]:
    """A kernel that does what ``function`` means, launched as it says."""
    run, buffers = compile_loops(function), [p.buffer for p in function.parameters]

    def kernel(grid: tuple[int, ...], threads: tuple[int, ...], *given: int) -> None:
        sizes = dict(zip(function.sizes, given[len(buffers) :], strict=True))
        extents = [[evaluate(n, sizes) for n in e] for e in launch_extents(function)]
        assert [prod(e) for e in extents] == [prod(grid), prod(threads)]
        arrays: list[Array] = []
        for place, buffer in zip(given, buffers, strict=False):
            size = evaluate(buffer.size, sizes)
            memory = (ctypes.c_uint8 * (size * buffer.dtype.bytes)).from_address(place)
            arrays.append(np.ctypeslib.as_array(memory).view(buffer.dtype.numpy))
        run(arrays, list(sizes.values()))

    return kernel, len(buffers), len(function.sizes)


def checked(function: Function) -> tuple[Kernel, int, int]:
    """As :func:`interpreted`, noting an index that is out of range behind the buffers."""
    kernel, buffers, sizes = interpreted(function)
    if not checks_in(function):
        return kernel, buffers, sizes

    def noting(grid: tuple[int, ...], threads: tuple[int, ...], *given: int) -> None:
        try:
            kernel(grid, threads, *given[:buffers], *given[buffers + 1 :])
        except OutOfBoundError as fault:
            noted = (ctypes.c_int64 * 2).from_address(given[buffers] + 16 * fault.number)
            noted[:] = 1, fault.value

    return noting, buffers + 1, sizes


Prepared = tuple[Artifact, dict[str, tuple[Kernel, int, int]]]


SM_80 = Options(target="cuda:sm_80")


def prepared(model: ModelSource, options: Options = SM_80) -> Prepared:
    """A model for a GPU, and its kernels interpreted."""
    seen: list[Program] = []

    def observer(run: StageRun) -> None:
        seen.extend(p for p in (run.after,) if isinstance(p, Program))

    artifact = compile_model(model, options, NOWHERE, observer).artifact
    return artifact, {symbol(f.name): checked(f) for f in device_functions(seen[-1])}
