"""Schedules of two contractions of which one sums rows of the other, the most promising first."""

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
from modelcc.targets.gpu.async_copy_choice import copied_schedules
from modelcc.targets.gpu.attention_parts import AttentionParts, find_attention
from modelcc.targets.gpu.decode_nests import find_decode
from modelcc.targets.gpu.evaluation import GroupKernel, extent_of
from modelcc.targets.gpu.flash_decoding import (
    flash_decoding_registers,
    flash_decoding_shared,
    verify_flash_decoding,
)
from modelcc.targets.gpu.flash_decoding_nests import FlashDecodingNests, find_flash_decoding
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.row_lanes import RowLanes
from modelcc.targets.gpu.sizes import count
from modelcc.targets.gpu.tensor_attention import WarpAttention
from modelcc.targets.gpu.warpgroup_attention import TileAttention
from modelcc.targets.gpu.warpgroup_product import BOXES
from modelcc.targets.gpu.wave_attention import LAYOUTS, RDNA3, WaveAttention

BLOCKS = (
    GroupAttention(64, 64, 256, 4),
    GroupAttention(64, 32, 128, 4),
    GroupAttention(32, 32, 64, 4),
    GroupAttention(32, 16, 64, 4),
    GroupAttention(16, 16, 64, 2),
    GroupAttention(8, 16, 32, 2),
    GroupAttention(8, 8, 32, 2),
)
"""Blocks of attention, the largest first."""

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
"""The same on matrix units, the best first if all units have some.  Threads that have whole rows of
operands have registers for fewer keys."""

SMALLEST = 64
"""Rows, and keys, of a block of boxes."""

ENOUGH = 256
"""Threads of a unit that keep its matrix units busy."""

SHORT = 1024
"""Keys of which products take a group no longer than to begin and to end."""

KEYS_AT_ONCE = 4
"""Keys, or values, that a thread of few rows waits for at the same time."""

WHOLE = 512
"""Keys that one group has as fast."""

MOST_PARTS = 64
"""Of keys: the last group puts all of them together."""

ALIGNMENT = 64
"""Bytes at whose multiples buffers begin."""


def decode_schedules(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupSchedule]:
    """Four warps that read keys and values by the largest vectors of a thread.  Where there are
    fewer groups than units each has twice as many, and waits for memory as seldom as it can."""
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
    """Eight warps that have two steps of :data:`KEYS_AT_ONCE` keys and values each, where threads
    exchange registers and copy while they go on.  Parts are as many as units run groups at the same
    time, if groups count each other: all of them begin at once, and each has a step on its way
    while it computes the one before, so that memory is asked all the time for more than it brings
    meanwhile, however many groups a unit has.  A part more than steps are alike for is none."""
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
    """Parts of keys, ``most`` at most, none of which has a step more than it would in fewer."""
    if not isinstance(parts.keys, int):
        return most
    steps = -(-parts.keys // (RowLanes.of(parts.depth, s).slots * s.keys))
    return -(-steps // -(-steps // min(most, steps)))


def runs_whole(kernel: Kernel, program: TensorProgram, machine: GpuModel) -> bool:
    """Whether all keys of a row are for one kernel, however many, on a ``machine``."""
    found = canonical(kernel, program.types, frozenset(), program.dims)[0]
    try:
        return any(True for _ in running_schedules(GroupKernel(found, "kernel"), machine))
    except ScheduleError:
        return False


def attention_schedules(kernel: GroupKernel, machine: GpuModel) -> Iterator[GroupSchedule]:
    """On matrix units, if they can; copied beside, if machines do that; then the largest blocks of
    which a unit runs two at once, where there are enough for all units; the smaller ones after
    them."""
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
    """Boxes; all units have some, if there are enough; then as many threads of each as it needs.

    Few rows are no reason for blocks of fewer than boxes have.  One warp has a quarter of a unit's
    rates: 16 rows and 32 keys, 64 deep, are 256 cycles of products and 128 of powers; 64 rows and
    128 keys are 512 and 512 by four warps and larger instructions.  Either waits for about 500 from
    scores to totals, so that is half the time for each key, whatever other units do.  A block of
    boxes has no more rows and keys than there are.  Of few keys in all, two groups of a unit with
    the smaller blocks are better than one: one computes while the other one begins or ends.
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
    """Registers that a thread on matrix units is expected to take."""
    return _by_fragments(kernel, blocks, parts).registers


def _by_fragments(
    kernel: GroupKernel, blocks: TensorAttention, parts: AttentionParts
) -> TileAttention | WarpAttention | WaveAttention:
    """What threads do by the family of instructions."""
    known = {BOXES: TileAttention, **dict.fromkeys(LAYOUTS, WaveAttention)}
    return known.get(blocks.instruction, WarpAttention)(kernel, blocks, parts)


def aligned_bytes(buffers: Sequence[Buffer]) -> int:
    """What buffers take that begin at multiples of :data:`ALIGNMENT`."""
    sizes = (b.size * b.dtype.bytes for b in buffers if isinstance(b.size, int))
    return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in sizes)


def attention_bytes(s: GroupAttention, parts: AttentionParts) -> int:
    """Shared memory of a group at most: each buffer begins at a multiple of :data:`ALIGNMENT`."""
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
    """Registers that a thread is expected to take: totals, scores, addresses, also of what is added
    to scores."""
    across = s.threads // (s.rows // s.thread_rows)
    columns = -(-parts.width // across) + s.keys // across
    made = {nest.output for nest in parts.scores}
    added = {r.tensor for nest in parts.scores[1:] for r in reads(nest.body)} - made
    addresses = machine.address_registers + 8 * (1 + len(added))
    return s.thread_rows * (columns + 3) + columns + addresses
