"""Schedules of chained contractions (sums over products' tiles), the most promising first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.types import F16
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import GroupChain, TensorChain
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.async_copy_attention import MARGIN
from modelcc.targets.gpu.attention.attention_choice import aligned_bytes
from modelcc.targets.gpu.chains.chain_parts import ChainParts, find_chain
from modelcc.targets.gpu.chains.tensor_chain import TensorChains
from modelcc.targets.gpu.chains.thread_chain import ThreadChain
from modelcc.targets.gpu.evaluation import GroupKernel
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.sizes import count
from modelcc.targets.isa.nvidia_mma import REGISTERS

BLOCKS = (
    GroupChain(64, 64, 256, 4),
    GroupChain(64, 32, 256, 4),
    GroupChain(64, 32, 128, 4),
    GroupChain(32, 32, 128, 4),
    GroupChain(32, 32, 64, 4),
    GroupChain(32, 16, 64, 4),
    GroupChain(16, 16, 64, 2),
    GroupChain(8, 16, 32, 2),
    GroupChain(8, 8, 32, 2),
    GroupChain(8, 8, 32, 1),
)
"""Block sizes without tensor cores, the largest first."""

VECTOR_BLOCKS = (
    GroupChain(64, 64, 128, 8),
    GroupChain(64, 32, 128, 4),
    GroupChain(64, 32, 256, 4),
    GroupChain(32, 32, 64, 4),
    GroupChain(32, 32, 128, 4),
    GroupChain(16, 32, 64, 2),
    GroupChain(16, 16, 64, 2),
    GroupChain(8, 16, 32, 2),
)
"""Block sizes with vector loads of f32."""

LANES = 4
"""Lanes of these vectors."""

WARP_BLOCKS = (
    TensorChain(128, 64),
    TensorChain(128, 32),
    TensorChain(64, 64),
    TensorChain(64, 32),
    TensorChain(32, 32),
    TensorChain(16, 32),
    TensorChain(16, 16),
)
"""Block sizes on tensor cores, the largest first."""

ENOUGH = 256
"""Threads of an SM that keep its tensor cores busy."""


def chain_schedules(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupChain | TensorChain]:
    """On tensor cores, if there are some for such types; then the largest blocks with two groups
    per SM, if there are enough for all SMs.

    Machines whose matrix cores support such types by other instructions use separate products.
    """
    parts = find_chain(kernel)
    halves = all(f.value.dtype.bits < 32 for p in parts.products for f in (p.left, p.right))
    if halves and machine.matrix:
        yield from _on_matrix_units(kernel, parts, machine)
    else:
        yield from _by_threads(kernel, parts, machine)


def _on_matrix_units(
    kernel: GroupKernel, parts: ChainParts, machine: GpuModel
) -> Iterator[TensorChain]:
    """Schedules with groups for all SMs first, then with enough threads on each."""
    subnormals = machine.matrix_subnormals or parts.products[0].left.value.dtype != F16
    if REGISTERS not in machine.matrix or not subnormals:
        return
    fitting: list[tuple[int, int, int, TensorChain]] = []
    for rank, blocks in enumerate(WARP_BLOCKS):
        found = TensorChains(kernel, blocks, parts)
        shared = aligned_bytes(found.shared)
        at_once = machine.groups_at_once(blocks.threads, found.registers, shared)
        if at_once:
            busy = min(at_once * blocks.threads, ENOUGH)
            fitting.append((_idle(parts, blocks.rows, machine), -busy, rank, blocks))
    yield from (blocks for *_, blocks in sorted(fitting, key=lambda f: f[:3]))


def _idle(parts: ChainParts, rows: int, machine: GpuModel) -> int:
    """SMs without a group."""
    groups = count(parts.batch) * -(-count(parts.products[0].rows) // rows)
    return max(machine.units - groups, 0)


def _by_threads(kernel: GroupKernel, parts: ChainParts, machine: GpuModel) -> Iterator[GroupChain]:
    """With vectors, where the machine has vector loads and factors allow them."""
    vectors = VECTOR_BLOCKS if machine.lanes >= LANES else ()
    wide = [replace(s, lanes=LANES, copies=machine.copies) for s in vectors]
    fitting: list[tuple[bool, bool, bool, int, GroupChain]] = []
    for rank, blocks in enumerate((*wide, *BLOCKS)):
        try:
            shared = aligned_bytes(ThreadChain(kernel, blocks, parts).shared)
        except ScheduleError:
            continue
        registers = chain_registers(blocks, parts, machine)
        at_once = machine.groups_at_once(blocks.threads, registers, shared)
        if at_once:
            idle = _idle(parts, blocks.rows, machine) > 0
            fitting.append((blocks.lanes == 1, at_once == 1, idle, rank, blocks))
    yield from (blocks for *_, blocks in sorted(fitting, key=lambda f: f[:4]))


def chain_registers(s: GroupChain, parts: ChainParts, machine: GpuModel) -> int:
    """Registers a thread is expected to take: totals, products, addresses, and factors, which are
    vectors where there is room."""
    across = s.threads // (s.rows // s.thread_rows)
    each = [-(-one.width // (across * s.lanes)) * s.lanes for one in parts.sums]
    keys = s.keys // across
    own = s.thread_rows * (sum(each) + keys * len(parts.products) + 1) + machine.address_registers
    if s.lanes == 1:
        return own + sum(each)
    factors, room = s.thread_rows + max(keys, *each), machine.thread_registers - MARGIN
    return own + factors if own + factors > room else min(own + s.lanes * factors, room)


def runs_as_chain(kernel: Kernel, program: TensorProgram, machine: GpuModel) -> bool:
    """Whether a ``machine`` has a schedule for a kernel as chained contractions."""
    found = canonical(kernel, program.types, frozenset(), program.dims)[0]
    try:
        return any(True for _ in chain_schedules(GroupKernel(found, "kernel"), machine))
    except ScheduleError:
        return False


def fragment_registers(kernel: GroupKernel, s: TensorChain) -> int:
    """Registers a thread on tensor cores is expected to take."""
    return TensorChains(kernel, s, find_chain(kernel)).registers
