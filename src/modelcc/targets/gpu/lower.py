"""One canonical kernel and a schedule, given or by default, become a function of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from modelcc.ir.loop import Function
from modelcc.schedule.canonical import CanonicalKernel
from modelcc.schedule.group_schedule import (
    FlashDecoding,
    GroupArrays,
    GroupAttention,
    GroupChain,
    GroupDecode,
    GroupProduct,
    GroupReduction,
    GroupRowProduct,
    GroupRows,
    GroupSchedule,
    GroupTranspose,
    GroupWindows,
    Pointwise,
    TensorAttention,
    TensorChain,
    TensorProduct,
)
from modelcc.schedule.schedule import NoScheduleError, Schedule, ScheduleError
from modelcc.targets.cpu.scheduled_kernel import ScheduledKernel
from modelcc.targets.gpu.attention.decode_attention import lower_decode
from modelcc.targets.gpu.attention.flash_decoding import lower_flash_decoding
from modelcc.targets.gpu.attention.tensor_attention import lower_tensor_attention
from modelcc.targets.gpu.attention.thread_attention import lower_attention
from modelcc.targets.gpu.attention.warpgroup_attention import lower_tile_attention
from modelcc.targets.gpu.attention.wave_attention import LAYOUTS, lower_wave_attention
from modelcc.targets.gpu.chains.tensor_chain import lower_tensor_chain
from modelcc.targets.gpu.chains.thread_chain import lower_chain
from modelcc.targets.gpu.choice import choices
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.overlap import overlapping
from modelcc.targets.gpu.points.arrays import lower_arrays
from modelcc.targets.gpu.points.pointwise import lower_pointwise
from modelcc.targets.gpu.points.transposition import lower_transpose
from modelcc.targets.gpu.products.persistent_product import lower_persistent_product
from modelcc.targets.gpu.products.product import lower_product
from modelcc.targets.gpu.products.tensor_product import lower_tensor_product
from modelcc.targets.gpu.products.warpgroup_product import BOXES, lower_tile_product
from modelcc.targets.gpu.products.weights import weight_layouts, with_weights
from modelcc.targets.gpu.residency import resident_groups
from modelcc.targets.gpu.rows.reduction import lower_reduction
from modelcc.targets.gpu.rows.row_product import lower_row_product
from modelcc.targets.gpu.rows.rows import lower_rows
from modelcc.targets.gpu.windows.strips import lower_windows


def _tensor_product(kernel: GroupKernel, schedule: TensorProduct) -> Function:
    if schedule.groups:
        return lower_persistent_product(kernel, schedule)
    boxes = schedule.instruction == BOXES
    return (lower_tile_product if boxes else lower_tensor_product)(kernel, schedule)


def _tensor_attention(kernel: GroupKernel, schedule: TensorAttention) -> Function:
    known = {BOXES: lower_tile_attention, **dict.fromkeys(LAYOUTS, lower_wave_attention)}
    return known.get(schedule.instruction, lower_tensor_attention)(kernel, schedule)


_KINDS: Mapping[type, Callable[..., Function]] = MappingProxyType(
    {
        Pointwise: lower_pointwise,
        GroupTranspose: lower_transpose,
        GroupWindows: lower_windows,
        GroupArrays: lower_arrays,
        GroupReduction: lower_reduction,
        GroupRows: lower_rows,
        GroupRowProduct: lower_row_product,
        GroupProduct: lower_product,
        TensorProduct: _tensor_product,
        GroupAttention: lower_attention,
        TensorAttention: _tensor_attention,
        GroupChain: lower_chain,
        TensorChain: lower_tensor_chain,
        GroupDecode: lower_decode,
        FlashDecoding: lower_flash_decoding,
    }
)


def schedule_groups_kernel(
    kernel: CanonicalKernel,
    name: str,
    machine: GpuModel,
    source: tuple[str, ...] = (),
    wanted: Schedule | None = None,
    states: frozenset[tuple[str, str]] = frozenset(),
) -> ScheduledKernel:
    """The function ``name`` of a kernel for groups of threads, scheduled as ``wanted`` or else by
    default; no result aliases an operand, whatever the ``states``.

    :class:`NoScheduleError` if no default fits; :class:`ScheduleError` if ``wanted`` does not.
    """
    del states
    layouts = weight_layouts(kernel, machine)
    kernel = with_weights(kernel, layouts)
    schedule = default_schedule(kernel, machine) if wanted is None else wanted
    grouped = GroupKernel(kernel, name, source)
    function = lower_groups(grouped, schedule)
    resident = resident_groups(grouped, schedule, function, machine)
    own = {*kernel.inputs, *kernel.outputs}
    working = frozenset(p.buffer.name for p in function.parameters) - own
    found = overlapping(replace(function, resident=resident), grouped, schedule, machine)
    return ScheduledKernel(found, layouts, (), schedule, working=working)


def default_schedule(kernel: CanonicalKernel, machine: GpuModel) -> GroupSchedule:
    """The most promising schedule; :class:`NoScheduleError` if none fits all stages at once."""
    found = next(candidates(kernel, machine), None)
    if found is None:
        raise NoScheduleError
    return found


def candidates(kernel: CanonicalKernel, machine: GpuModel) -> Iterator[GroupSchedule]:
    """Schedules that fit, the most promising first."""
    return choices(GroupKernel(kernel, "kernel"), machine)


def lower_groups(kernel: GroupKernel, schedule: Schedule) -> Function:
    """The function of a kernel; :class:`ScheduleError` if the schedule does not fit."""
    lower = _KINDS.get(type(schedule))
    if lower is None:
        raise ScheduleError("groups of threads have no such schedule")
    return lower(kernel, schedule)
