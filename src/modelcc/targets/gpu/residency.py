"""How many groups of a kernel its schedule assumes to be resident on an SM."""

from __future__ import annotations

from math import prod

from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import launch_extents
from modelcc.ir.scalar_tree import reads
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
    GroupTranspose,
    GroupWindows,
    Pointwise,
    TensorAttention,
    TensorChain,
    TensorProduct,
)
from modelcc.schedule.schedule import Schedule
from modelcc.targets.gpu.attention.async_copy_attention import copied_registers
from modelcc.targets.gpu.attention.attention_choice import attention_registers, fragment_registers
from modelcc.targets.gpu.attention.attention_parts import find_attention
from modelcc.targets.gpu.attention.flash_decoding import flash_decoding_registers
from modelcc.targets.gpu.attention.flash_decoding_nests import find_flash_decoding
from modelcc.targets.gpu.chains.chain_choice import chain_registers
from modelcc.targets.gpu.chains.chain_choice import fragment_registers as chain_fragments
from modelcc.targets.gpu.chains.chain_parts import find_chain
from modelcc.targets.gpu.choice import product_registers
from modelcc.targets.gpu.contraction import group_contraction
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.points.arrays import array_registers
from modelcc.targets.gpu.products.tensor_choice import tensor_registers
from modelcc.targets.gpu.rows.row_choice import reduction_registers
from modelcc.targets.gpu.rows.row_product import find_row_product
from modelcc.targets.gpu.rows.row_product_choice import row_product_registers
from modelcc.targets.gpu.windows.window_choice import window_registers
from modelcc.targets.llvm.groups import shared_bytes

FEW_OPERANDS = 2
"""Operands of element-wise kernels, with which a thread takes few registers."""


def resident_groups(
    kernel: GroupKernel, schedule: Schedule, function: Function, machine: GpuModel
) -> int:
    """Resident groups of ``function``, which is ``kernel`` by ``schedule``, but no more than there
    are per SM; 0 if the schedule assumes no number of registers."""
    registers = _registers(kernel, schedule, machine)
    if not registers:
        return 0
    grid, group = launch_extents(function)
    threads, groups = (prod(n for n in each if isinstance(n, int)) for each in (group, grid))
    at_once = machine.groups_at_once(threads, registers, shared_bytes(function))
    known = all(isinstance(n, int) for n in grid)
    return min(at_once, max(-(-groups // machine.units), 1)) if known else at_once


def _registers(kernel: GroupKernel, schedule: Schedule, machine: GpuModel) -> int:
    """Registers of a thread, as the choice of the schedule assumed."""
    match schedule:
        case GroupProduct():
            found = group_contraction(kernel.group)
            return 0 if found is None else product_registers(schedule, found, machine)
        case TensorProduct():
            return _tensor_registers(kernel, schedule)
        case GroupAttention():
            copied = schedule.lanes > 1
            registers = copied_registers if copied else attention_registers
            return registers(schedule, find_attention(kernel), machine)
        case TensorAttention():
            return fragment_registers(kernel, schedule, find_attention(kernel))
        case GroupChain():
            return chain_registers(schedule, find_chain(kernel), machine)
        case TensorChain():
            return chain_fragments(kernel, schedule)
        case GroupReduction():
            return reduction_registers(kernel.group, schedule)
        case GroupRowProduct():
            return row_product_registers(find_row_product(kernel), schedule, machine)
        case GroupRows():
            return max(32 + schedule.kept * 4 // 3, 40)
        case GroupWindows():
            anchor = kernel.group.anchor
            return 0 if anchor is None else window_registers(anchor, schedule)
        case GroupArrays():
            return array_registers(kernel, schedule)
        case Pointwise() | GroupTranspose():
            return _point_registers(kernel)
        case FlashDecoding():
            return flash_decoding_registers(find_flash_decoding(kernel), schedule)
        case GroupDecode():
            return 40 + 4 * schedule.keys
        case _:
            return 0


def _tensor_registers(kernel: GroupKernel, schedule: TensorProduct) -> int:
    found = group_contraction(kernel.group)
    return 0 if found is None else tensor_registers(schedule, found.left.value.dtype, found)


def _point_registers(kernel: GroupKernel) -> int:
    """Registers: more where loads of several operands are in flight."""
    group = kernel.group
    if group.anchor is not None:
        return 48
    made = {nest.output for nest in group.nests}
    read = [r for nest in group.nests for r in reads(nest.body) if r.tensor not in made]
    return 32 if len(read) <= FEW_OPERANDS else 40
