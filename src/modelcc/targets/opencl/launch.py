"""Runs functions of groups through pyopencl, on whatever device its drivers have.

Needs the extra ``opencl``; importing this file without it is an ``ImportError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import pyopencl as cl

from modelcc.ir.errors import ModelError
from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_group_verifier import GroupLimits
from modelcc.ir.loop_traversal import checks_in, launch_extents
from modelcc.ir.types import Array
from modelcc.runtime.opencl_device import TAKES_SPIRV, build_program
from modelcc.targets.c.names import symbol
from modelcc.targets.opencl.spirv import spirv_module
from modelcc.targets.opencl.text import opencl_text


def find_device() -> cl.Device:
    """The first device there is; :class:`ModelError` if there is none."""
    try:
        found = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        raise ModelError(f"OpenCL finds no platform: {error}", (), "install a driver") from error
    if not found:
        raise ModelError("no platform of OpenCL has a device", (), "install a driver, as pocl")
    return found[0]


def limits_of(device: cl.Device) -> GroupLimits:
    """What a group may take of the device."""
    return GroupLimits(device.local_mem_size, device.max_work_group_size)


@dataclass(frozen=True, eq=False)
class OpenclKernels:
    """Functions by name, built for a device."""

    functions: Mapping[str, Function]
    context: cl.Context
    queue: cl.CommandQueue
    program: cl.Program

    def run(self, name: str, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        """Run a function; contiguous ``arrays`` of mutable parameters get what it leaves there."""
        function = self.functions[name]
        env = dict(zip(function.sizes, sizes, strict=True))
        grid, threads = launch_extents(function)
        groups = [evaluate(extent, env) for extent in grid]
        if prod(groups) == 0:
            return
        buffers = [self._buffer(array) for array in arrays]
        faults = np.zeros(2 * checks_in(function), np.int64)
        noted = [self._buffer(faults)] if faults.size else []
        kernel = cl.Kernel(self.program, symbol(name))
        kernel.set_args(*buffers, *noted, *map(np.int64, sizes))
        size = _dimensions([evaluate(extent, env) for extent in threads])
        total = tuple(n * s for n, s in zip(_dimensions(groups), size, strict=True))
        cl.enqueue_nd_range_kernel(self.queue, kernel, total, size)
        for parameter, array, buffer in zip(function.parameters, arrays, buffers, strict=True):
            if parameter.mutable and array.nbytes:
                cl.enqueue_copy(self.queue, array.reshape(-1).view(np.uint8), buffer)
        self.queue.finish()

    def _buffer(self, array: Array) -> cl.Buffer:
        if not array.nbytes:
            return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, 1)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self.context, flags, hostbuf=array.reshape(-1).view(np.uint8))


def build_opencl(functions: Sequence[Function], device: cl.Device) -> OpenclKernels:
    """``functions``, ready to run; :class:`ModelError` with the compiler's words if it refuses."""
    return _built(functions, device, opencl_text(functions, limits_of(device)).encode())


def takes_spirv(device: cl.Device) -> bool:
    """Whether :func:`build_spirv` may be asked for."""
    return TAKES_SPIRV in str(device.extensions).split()


def build_spirv(functions: Sequence[Function], device: cl.Device) -> OpenclKernels:
    """As :func:`build_opencl`, by SPIR-V."""
    return _built(functions, device, spirv_module(functions, limits_of(device)))


def _built(functions: Sequence[Function], device: cl.Device, code: bytes) -> OpenclKernels:
    context = cl.Context([device])
    try:
        program = build_program(context, code)
    except cl.Error as error:
        names = tuple(f"@{function.name}" for function in functions)
        raise ModelError(f"OpenCL does not compile it: {error}", names) from error
    by_name = {function.name: function for function in functions}
    return OpenclKernels(by_name, context, cl.CommandQueue(context), program)


def _dimensions(extents: Sequence[int]) -> tuple[int, ...]:
    """Three of them."""
    return (*extents, *(1 for _ in range(3 - len(extents))))
