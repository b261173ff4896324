"""Runs kernels for groups of threads by WebGPU, one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import wgpu
from kernel_runs import Executor

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.types import Array
from modelcc.runtime.devices.webgpu_adapters import find_adapters, opened
from modelcc.runtime.devices.webgpu_device import WebgpuDevice
from modelcc.targets.webgpu.emitter import BINDING_BYTES, plain_function, shader_of


@cache
def open_once() -> wgpu.GPUDevice:
    """The device that all tests share; :class:`LoadError` if there is none."""
    return opened(find_adapters()[0])


def by_webgpu(functions: Sequence[Function], piece_bytes: int = BINDING_BYTES) -> Executor:
    """Executes any of ``functions`` on the device; they see ``piece_bytes`` of memory at once."""
    plain = {f.name: plain_function(f) for f in functions}
    shaders = {name: shader_of(function, None, piece_bytes) for name, function in plain.items()}
    device = WebgpuDevice("tests", open_once())
    device.add(list(shaders.values()))

    def run(name: str, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        shader = shaders[name]
        env = dict(zip(shader.sizes, sizes, strict=True))
        faults = np.zeros(shader.faults, np.uint32)
        memories = [device.allocate(array.nbytes) for array in (*arrays, faults)]
        for memory, array in zip(memories, (*arrays, faults), strict=True):
            device.upload(memory, 0, array.ctypes.data, array.nbytes)
        given = memories if shader.faults else memories[:-1]
        x, y, z = (*(evaluate(extent, env) for extent in shader.grid), 1, 1)[:3]
        device.launch(name, [(memory, 0) for memory in given], sizes, (x, y, z))
        for memory, array in zip(memories, (*arrays, faults), strict=True):
            device.download(memory, 0, array.ctypes.data, array.nbytes)
        if faults.any():
            raise IndexError(f"check {faults.nonzero()[0][0] // 4} of {name} fails")

    return run
