"""Runs kernels for groups of threads by Metal, or what stands for it, one at a time."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from kernel_runs import Executor
from metal_driver import FakeMetal

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import checks_in, launch_extents
from modelcc.ir.types import Array
from modelcc.runtime.devices import metal_device as metal_device_module
from modelcc.runtime.devices.device import Groups
from modelcc.runtime.devices.metal_device import MetalApi, MetalDevice, device_of, metal_api
from modelcc.runtime.errors import LoadError
from modelcc.targets.base import TargetOptions
from modelcc.targets.c.names import symbol
from modelcc.targets.metal.target import metal_target, metal_text


def metal_device(metal: FakeMetal | None = None) -> MetalDevice:
    """A device of what stands for Metal."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    found = metal or FakeMetal()
    return device_of(MetalApi(found, found.pool), 0)


def _any_device() -> MetalDevice:
    """This machine's, or one of what stands for Metal."""
    try:
        return device_of(metal_api(sys.platform), 0)
    except LoadError:
        return metal_device()


def by_metal(functions: Sequence[Function]) -> Executor:
    """Executes any of ``functions``; IndexError for a check that fails."""
    target = metal_target(TargetOptions())
    by_name = {f.name: target.legalize_groups(f) for f in functions}
    device = _any_device()
    extents = {symbol(f.name): launch_extents(f)[1] for f in functions}
    threads = {name: _groups([evaluate(e, {}) for e in x]) for name, x in extents.items()}
    device.load(metal_text(list(by_name.values())).encode(), threads)

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
        if faults.any():
            raise IndexError(f"check {faults.nonzero()[0][0] // 2} of {name} fails")

    return run


def _groups(extents: Sequence[int]) -> Groups:
    x, y, z = (*extents, 1, 1)[:3]
    return x, y, z


def install(monkeypatch: pytest.MonkeyPatch) -> FakeMetal:
    """What stands for Metal, for models that are loaded; a test without a compiler is skipped."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    metal = FakeMetal()
    monkeypatch.setattr(metal_device_module, "metal_api", lambda _: MetalApi(metal, metal.pool))
    return metal
