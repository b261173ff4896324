"""What kernels take of a GPU, by its model and by what is known of compiled code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from modelcc.ir.loop import Alloc, Function, RoutineCall
from modelcc.ir.loop_traversal import launch_extents, statements
from modelcc.ir.types import F32
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.isa.fragments import multiply
from modelcc.targets.kernel_use import CompiledKernel, DeviceFacts, GroupUse
from modelcc.targets.llvm.groups import shared_bytes


def device_facts(
    functions: Iterable[Function], gpu: GpuModel, compiled: Mapping[str, CompiledKernel | None]
) -> DeviceFacts:
    """Of ``functions`` of groups, which are ``compiled`` by their names, or None by the driver."""
    uses = {f.name: kernel_use(f, gpu, compiled[f.name]) for f in functions}
    return DeviceFacts(gpu.name, gpu.bandwidth * 1e9, gpu.memory_bytes, uses)


def kernel_use(function: Function, gpu: GpuModel, found: CompiledKernel | None) -> GroupUse:
    """Of one function, and its compiled code where that is ``found``."""
    threads = prod(n for n in launch_extents(function)[1] if isinstance(n, int))
    shared = shared_bytes(function)
    groups = function.resident or gpu.groups_at_once(threads, 0, shared)
    planned = groups * threads / gpu.unit_threads
    rate = (gpu.matrix_flops if _has_fragments(function) else 0) or gpu.flops
    use = (function.name, threads, shared, planned, rate * 1e12)
    if found is None:
        return GroupUse(*use)
    part = gpu.occupancy(threads, found.registers, shared)
    return GroupUse(*use, found.registers, found.local, part)


def _has_fragments(function: Function) -> bool:
    """Whether it multiplies by matrix instructions, whose operands are a warp's, at more than the
    rate of f32."""
    found = list(statements(function.body))
    exact = any(isinstance(s, RoutineCall) and s.routine == multiply(F32, True) for s in found)
    return not exact and any(isinstance(s, Alloc) and s.buffer.space == "warp" for s in found)
