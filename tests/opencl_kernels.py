"""Runs kernels for groups of threads by OpenCL, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod

import numpy as np
import pyopencl as cl
from kernel_runs import Executor

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_traversal import checks_in, launch_extents
from modelcc.ir.types import Array
from modelcc.runtime.devices.device import Groups
from modelcc.runtime.devices.opencl_device import TAKES_SPIRV, OpenclDevice, find_device
from modelcc.targets.c.names import symbol
from modelcc.targets.opencl.spirv import spirv_module
from modelcc.targets.opencl.text import opencl_text


@cache
def first_device() -> cl.Device:
    """The device that all tests share; :class:`LoadError` if there is none."""
    return find_device(0)


def takes_spirv() -> bool:
    """Whether :func:`by_spirv` may be asked for."""
    return TAKES_SPIRV in str(first_device().extensions).split()


def by_opencl(functions: Sequence[Function]) -> Executor:
    """Executes any of ``functions``, as OpenCL C."""
    return _executor(functions, opencl_text(functions, _limits()).encode())


def by_spirv(functions: Sequence[Function]) -> Executor:
    """Executes any of ``functions``, as SPIR-V."""
    return _executor(functions, spirv_module(functions, _limits()))


def _limits() -> GroupLimits:
    device = first_device()
    return GroupLimits(device.local_mem_size, device.max_work_group_size)


def _executor(functions: Sequence[Function], code: bytes) -> Executor:
    by_name = {function.name: function for function in functions}
    device = OpenclDevice(first_device())
    extents = {symbol(f.name): launch_extents(f)[1] for f in functions}
    device.load(code, {name: _groups([evaluate(e, {}) for e in x]) for name, x in extents.items()})

    def run(name: str, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        function = by_name[name]
        env = dict(zip(function.sizes, sizes, strict=True))
        grid = [evaluate(extent, env) for extent in launch_extents(function)[0]]
        if prod(grid) == 0:
            return
        faults = np.zeros(2 * checks_in(function), np.int64)
        given = [*arrays, faults] if faults.size else arrays
        memories = [device.allocate(array.nbytes) for array in given]
        for memory, array in zip(memories, given, strict=True):
            device.upload(memory, 0, array.ctypes.data, array.nbytes)
        device.launch(symbol(name), [(memory, 0) for memory in memories], sizes, _groups(grid))
        for memory, array in zip(memories, given, strict=True):
            device.download(memory, 0, array.ctypes.data, array.nbytes)
        device.synchronize()
        assert not faults.any()

    return run


def _groups(extents: Sequence[int]) -> Groups:
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z
