"""Schedules of attention (back-to-back contractions), the most promising first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from modelcc.ir.loop import Buffer
from modelcc.ir.scalar_tree import reads
from modelcc.ir.tensor import Kernel, TensorProgram
from modelcc.ir.types import F16
from modelcc.schedule.canonical import canonical
from modelcc.schedule.group_schedule import (
    FlashDecoding,
    GroupAttention,
    GroupDecode,
    GroupSchedule,
    TensorAttention,
)
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.async_copy_choice import copied_schedules
from modelcc.targets.gpu.attention.attention_parts import AttentionParts, find_attention
from modelcc.targets.gpu.attention.decode_nests import find_decode
from modelcc.targets.gpu.attention.flash_decoding import (
    flash_decoding_registers,
    flash_decoding_shared,
    verify_flash_decoding,
)
from modelcc.targets.gpu.attention.flash_decoding_nests import (
    FlashDecodingNests,
    find_flash_decoding,
)
from modelcc.targets.gpu.attention.row_lanes import RowLanes
from modelcc.targets.gpu.attention.tensor_attention import WarpAttention
from modelcc.targets.gpu.attention.warpgroup_attention import TileAttention
from modelcc.targets.gpu.attention.wave_attention import LAYOUTS, RDNA3, WaveAttention
from modelcc.targets.gpu.evaluation import GroupKernel, extent_of
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.products.warpgroup_product import BOXES
from modelcc.targets.gpu.sizes import count

BLOCKS = (
    GroupAttention(64, 64, 256, 4),
    GroupAttention(64, 32, 128, 4),
    GroupAttention(32, 32, 64, 4),
    GroupAttention(32, 16, 64, 4),
    GroupAttention(16, 16, 64, 2),
    GroupAttention(8, 16, 32, 2),
    GroupAttention(8, 8, 32, 2),
)
"""Block sizes of attention without tensor cores, the largest first."""

WARP_BLOCKS = (
    TensorAttention(128, 128, BOXES),
    TensorAttention(128, 64, BOXES),
    TensorAttention(64, 128, BOXES),
    TensorAttention(64, 64, BOXES),
    TensorAttention(128, 64),
    TensorAttention(64, 64),
    TensorAttention(64, 32),
    TensorAttention(32, 32),
    TensorAttention(16, 32),
    *(
        TensorAttention(rows, keys, family)
        for family in LAYOUTS
        for rows, keys in ((128, 32), (64, 64), (64, 32), (32, 64), (32, 32), (16, 32))
        if family != RDNA3 or keys < 64
    ),
    *(TensorAttention(rows, 16, RDNA3) for rows in (128, 64, 32, 16)),
)
"""The same on tensor cores, the best first if all SMs have groups.  Threads that hold whole rows of
operands have registers for fewer keys."""

SMALLEST = 64
"""Rows, and keys, of the smallest block for wgmma."""

ENOUGH = 256
"""Threads of an SM that keep its tensor cores busy."""

SHORT = 1024
"""Keys whose products take a group no longer than its start and end."""

KEYS_AT_ONCE = 4
"""Keys, or values, that a thread of few rows loads at the same time."""

WHOLE = 512
"""Keys up to which one group per batch is as fast."""

MOST_PARTS = 64
"""Parts of the keys: the last group combines all of them."""

ALIGNMENT = 64
"""Alignment of buffers, in bytes."""


def decode_schedules(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupSchedule]:
    """Four warps that load keys and values by the largest vectors of a thread.  With fewer groups
    than SMs, each has twice as many warps, and waits for memory as seldom as it can."""
    if not machine.exchanges:
        return
    parts = find_decode(kernel)
    most = 4 * machine.lanes // min(r.dtype.bytes for f in parts.read_once for r in reads(f))
    lanes = next(n for n in (8, 4, 2, 1) if n <= max(most, 1) and parts.takes_lanes(n))
    groups = extent_of(parts.batch)
    if not isinstance(groups, int) or groups >= machine.units:
        yield GroupDecode(4 * machine.warp, KEYS_AT_ONCE, lanes, machine.warp)
        return
    threads = min(8 * machine.warp, machine.group_threads)
    at_once = threads * lanes // min(max(parts.depth, lanes), machine.warp * lanes)

    def steps(keys: int) -> int:
        return -(-parts.keys // (max(at_once, 1) * keys))

    keys = min(range(KEYS_AT_ONCE, 2 * KEYS_AT_ONCE + 1), key=steps)
    yield GroupDecode(threads, keys, lanes, machine.warp)


def running_schedules(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupSchedule]:
    """Eight warps with two steps of :data:`KEYS_AT_ONCE` keys and values each, on machines with
    warp shuffles and asynchronous copies.  If groups can count arrivals, there are as many parts as
    the machine runs groups at the same time: all start at once, and each has a step in flight while
    it computes the previous one, so that memory stays busy whatever the number of groups on an SM.
    Parts that would not reduce the number of steps are left out."""
    if not (machine.exchanges and machine.copies):
        return
    parts = find_flash_decoding(kernel)
    if isinstance(parts.keys, int) and parts.keys <= WHOLE:
        return
    most = 4 * machine.lanes // min(parts.key_bytes, parts.value_bytes)
    lanes = next(n for n in (8, 4, 2, 1) if n <= max(most, 1) and parts.takes_lanes(n))
    s = FlashDecoding(8 * machine.warp, KEYS_AT_ONCE, lanes, machine.warp)
    verify_flash_decoding(parts, s)
    shared = flash_decoding_shared(parts, s)
    at_once = machine.groups_at_once(s.threads, flash_decoding_registers(parts, s), shared)
    tiles = extent_of(parts.batch)
    if at_once and isinstance(tiles, int) and (machine.arrivals or tiles >= machine.units):
        most = min(at_once * machine.units // tiles, MOST_PARTS) if machine.arrivals else 1
        yield replace(s, parts=_parts_of(parts, s, max(most, 1)))


def _parts_of(parts: FlashDecodingNests, s: FlashDecoding, most: int) -> int:
    """Parts of keys, at most ``most``: as few as give the same number of steps per part."""
    if not isinstance(parts.keys, int):
        return most
    steps = -(-parts.keys // (RowLanes.of(parts.depth, s).slots * s.keys))
    return -(-steps // -(-steps // min(most, steps)))


def runs_whole(kernel: Kernel, program: TensorProgram, machine: GpuModel) -> bool:
    """Whether one kernel handles all keys of a row, whatever their number, on a ``machine``."""
    found = canonical(kernel, program.types, frozenset(), program.dims)[0]
    try:
        return any(True for _ in running_schedules(GroupKernel(found, "kernel"), machine))
    except ScheduleError:
        return False


def attention_schedules(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupSchedule]:
    """On tensor cores, if they apply; with asynchronous copies, if the machine has them; then the
    largest blocks with two groups per SM, if there are enough for all SMs, before smaller ones."""
    parts = find_attention(kernel)
    rows, outer = count(parts.first.rows), count(parts.first.batch)
    yield from _on_matrix_units(kernel, parts, machine)
    yield from copied_schedules(parts, machine)
    fitting: list[tuple[bool, bool, int, GroupAttention]] = []
    for rank, blocks in enumerate(BLOCKS):
        shared = attention_bytes(blocks, parts)
        registers = attention_registers(blocks, parts, machine)
        at_once = machine.groups_at_once(blocks.threads, registers, shared)
        few = outer * -(-rows // blocks.rows) < machine.units
        if at_once:
            fitting.append((at_once == 1, few, rank, blocks))
    yield from (blocks for *_, blocks in sorted(fitting, key=lambda f: f[:3]))


def _on_matrix_units(
    kernel: GroupKernel, parts: AttentionParts, machine: GpuModel
) -> Iterator[TensorAttention]:
    """wgmma first; then schedules with groups for all SMs; then with enough threads on each.

    Few rows are no reason for blocks smaller than those of wgmma.  One warp has a quarter of an
    SM's rates: 16 rows and 32 keys, 64 deep, take 256 cycles of products and 128 of exponentials;
    64 rows and 128 keys take 512 and 512 with four warps and larger instructions.  Either waits
    about 500 cycles from scores to totals, so the latter takes half the time per key, even if other
    SMs are idle.  A block has no more rows and keys than there are.  With few keys in all, two
    groups per SM with the smaller blocks are better than one: one computes while the other one
    starts or ends.
    """
    rows, outer = count(parts.first.rows), count(parts.first.batch)
    keys = count(parts.first.columns)
    if parts.first.left.value.dtype == F16 and not machine.matrix_subnormals:
        return
    by_waves = not LAYOUTS.keys().isdisjoint(machine.matrix)
    fitting: list[tuple[bool, bool, int, int, bool, int, TensorAttention]] = []
    for rank, blocks in enumerate(WARP_BLOCKS):
        boxes = blocks.instruction == BOXES
        known = blocks.instruction in (LAYOUTS if by_waves else ("mma", BOXES))
        if blocks.instruction not in machine.matrix or not known:
            continue
        try:
            found = _by_fragments(kernel, blocks, parts)
        except ScheduleError:
            continue
        shared = aligned_bytes(found.shared)
        at_once = machine.groups_at_once(blocks.threads, found.registers, shared)
        idle = max(machine.units - outer * -(-rows // blocks.rows), 0)
        if at_once:
            threads = min(at_once * blocks.threads, ENOUGH)
            sides = (blocks.rows, rows), (blocks.keys, keys)
            beyond = boxes and any(block > SMALLEST >= there for block, there in sides)
            largest = blocks.rows == WARP_BLOCKS[0].rows
            beside = boxes and keys <= SHORT and largest and at_once > 1
            warps = 0 if boxes else -threads
            fitting.append((not boxes, beyond, idle, warps, not beside, rank, blocks))
    yield from (blocks for *_, blocks in sorted(fitting, key=lambda f: f[:6]))


def fragment_registers(kernel: GroupKernel, blocks: TensorAttention, parts: AttentionParts) -> int:
    """Registers a thread on tensor cores is expected to take."""
    return _by_fragments(kernel, blocks, parts).registers


def _by_fragments(
    kernel: GroupKernel, blocks: TensorAttention, parts: AttentionParts
) -> TileAttention | WarpAttention | WaveAttention:
    """The lowering for the family of instructions."""
    known = {BOXES: TileAttention, **dict.fromkeys(LAYOUTS, WaveAttention)}
    return known.get(blocks.instruction, WarpAttention)(kernel, blocks, parts)


def aligned_bytes(buffers: Sequence[Buffer]) -> int:
    """Bytes of buffers that are aligned to :data:`ALIGNMENT`."""
    sizes = (b.size * b.dtype.bytes for b in buffers if isinstance(b.size, int))
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)


def attention_bytes(s: GroupAttention, parts: AttentionParts) -> int:
    """Most shared memory of a group, with buffers aligned to :data:`ALIGNMENT`."""
    queries, keys = parts.first.left.value.dtype.bytes, parts.first.right.value.dtype.bytes
    values, weight = parts.second.right.value.dtype.bytes, parts.scores[-1].body.dtype.bytes
    across = s.threads // (s.rows // s.thread_rows)
    width = -(-parts.width // across) * across
    part = s.rows * across * weight
    buffers = [
        parts.depth * (s.rows + 1) * queries,
        parts.depth * (s.keys + 1) * keys,
        s.keys * (width + 1) * values,
        s.rows * (s.keys + 1) * weight,
        *(part for _ in range(1 + len(parts.sums))),
    ]
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in buffers)


def attention_registers(s: GroupAttention, parts: AttentionParts, machine: GpuModel) -> int:
    """Registers a thread is expected to take: totals, scores, and addresses, including those of
    masks and biases that are added to scores."""
    across = s.threads // (s.rows // s.thread_rows)
    columns = -(-parts.width // across) + s.keys // across
    made = {nest.output for nest in parts.scores}
    added = {r.tensor for nest in parts.scores[1:] for r in reads(nest.body)} - made
    addresses = machine.address_registers + 8 * (1 + len(added))
    return s.thread_rows * (columns + 3) + columns + addresses
