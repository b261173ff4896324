"""Resources of kernels on a GPU, by the machine model and by what is known of compiled code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from modelcc.ir.loop import Alloc, Function, RoutineCall
from modelcc.ir.loop_traversal import launch_extents, statements
from modelcc.ir.types import F32
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.isa.fragments import multiply
from modelcc.targets.isa.split_product import multiply_split
from modelcc.targets.kernel_use import CompiledKernel, DeviceFacts, GroupUse
from modelcc.targets.llvm.groups import shared_bytes


def device_facts(
    functions: Iterable[Function], gpu: GpuModel, compiled: Mapping[str, CompiledKernel | None]
) -> DeviceFacts:
    """Facts of ``functions`` of groups, ``compiled`` by names, or None if the driver does it."""
    uses = {f.name: kernel_use(f, gpu, compiled[f.name]) for f in functions}
    return DeviceFacts(gpu.name, gpu.bandwidth * 1e9, gpu.memory_bytes, uses)


def kernel_use(function: Function, gpu: GpuModel, found: CompiledKernel | None) -> GroupUse:
    """The resources of one function, and of its compiled code if that is ``found``."""
    threads = prod(n for n in launch_extents(function)[1] if isinstance(n, int))
    shared = shared_bytes(function)
    groups = function.resident or gpu.groups_at_once(threads, 0, shared)
    planned = groups * threads / gpu.unit_threads
    rate = _matrix_flops(function, gpu) or gpu.flops
    use = (function.name, threads, shared, planned, rate * 1e12)
    if found is None:
        return GroupUse(*use)
    part = gpu.occupancy(threads, found.registers, shared)
    return GroupUse(*use, found.registers, found.local, part)


def _matrix_flops(function: Function, gpu: GpuModel) -> float:
    """1e12 operations per second of a function's matrix instructions, whose operands are a warp's;
    0 if there are none, or they have the rate of f32.  TF32 has half the rate of f16."""
    found = list(statements(function.body))
    routines = {s.routine for s in found if isinstance(s, RoutineCall)}
    warps = any(isinstance(s, Alloc) and s.buffer.space == "warp" for s in found)
    if not warps or multiply(F32, True) in routines:
        return 0.0
    halved = not routines.isdisjoint((multiply(F32), multiply_split()))
    return gpu.matrix_flops / 2 if halved else gpu.matrix_flops
