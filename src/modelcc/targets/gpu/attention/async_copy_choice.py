"""Block sizes of attention with asynchronous copies, by expected time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from modelcc.passes.tensor.online_softmax import seen_keys
from modelcc.schedule.group_schedule import GroupAttention
from modelcc.schedule.schedule import ScheduleError
from modelcc.targets.gpu.attention.async_copy_attention import (
    MARGIN,
    copied_bytes,
    copied_registers,
    has_squares,
    verify_copied,
)
from modelcc.targets.gpu.attention.attention_parts import AttentionParts
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.sizes import count

BLOCKS = tuple(
    GroupAttention(rows, keys, rows // own * across, own, 4, 32)
    for rows, keys, own, across in product((128, 64, 32, 16), (64, 32), (8, 4, 2), (8, 16))
    if 64 <= rows // own * across <= 256
)
"""Block sizes, the largest first."""

UNIT_PRODUCTS = 128
"""Multiply-adds of an SM per cycle."""

LOAD = 9
"""Multiply-adds in the time of loading a vector of four from shared memory, as fitted to products
(:func:`~modelcc.targets.gpu.choice.product_time`)."""

SCORE, ROW, COPY = 16, 40, 6
"""Multiply-adds in the time of a score's epilogue, of what threads of a row exchange for it, and of
a copy: their instructions, of which exponentials and shared-memory stores take several cycles."""

BLOCK_CYCLES, VECTOR_CYCLES = 800, 35
"""Cycles of a block without products, if a group is alone on an SM: two barriers and exchanges; and
of each vector of terms, or of keys, whose factors are loaded; estimated."""

COPY_CYCLES = 1000
"""From the issue of copies to the barrier after them, twice per block."""

GROUP_CYCLES = 4900
"""From the start of a group to its first products, and from the last ones to its end, as fitted to
products."""

RESULT = 20
"""Multiply-adds in the time of a result."""

SCHEDULERS = 4
"""Warp schedulers of an SM; a group of fewer warps does not use all."""


def copied_schedules(parts: AttentionParts, machine: GpuModel) -> Iterator[GroupAttention]:
    """Schedules by expected time; none without asynchronous copies, or if operands are not f32."""
    if not machine.copies or not machine.exchanges or machine.lanes < BLOCKS[0].lanes:
        return
    fitting: list[tuple[float, int, GroupAttention]] = []
    for rank, shape in enumerate(BLOCKS):
        blocks = replace(shape, interleaved=machine.paired and has_squares(shape))
        try:
            verify_copied(blocks, parts)
        except ScheduleError:
            return
        time = copied_time(blocks, parts, machine)
        if time is not None:
            fitting.append((time, rank, blocks))
    yield from (blocks for *_, blocks in sorted(fitting, key=lambda f: f[:2]))


def copied_time(s: GroupAttention, parts: AttentionParts, machine: GpuModel) -> float | None:
    """Expected time of all blocks, in multiply-adds of one SM; None if an SM cannot run its groups.

    Groups run in waves of as many as fit on the machine; the last wave may be smaller.  Under a
    causal mask, groups have half of the blocks on average, and the last to end is one that has all.
    """
    registers, shared = copied_registers(s, parts, machine), copied_bytes(s, parts)
    if registers > machine.thread_registers - MARGIN:
        return None
    at_once = machine.groups_at_once(s.threads, registers, shared)
    if not at_once:
        return None
    groups = count(parts.first.batch) * -(-count(parts.first.rows) // s.rows)
    per_unit = -(-groups // machine.units)
    most = -(-max(count(parts.first.columns), 1) // s.keys)
    blocks = (most + 1) / 2 if seen_keys(parts.pair, parts.weights) is not None else most
    results = s.rows * parts.width * RESULT

    def wave(together: int, blocks: float) -> float:
        around = GROUP_CYCLES * UNIT_PRODUCTS + together * results
        return blocks * _block(s, parts, machine, together) + around

    full, left = divmod(per_unit, at_once)
    time = full * wave(at_once, blocks) + (wave(left, blocks) if left else 0)
    return max(time, wave(1, most))


def _block(s: GroupAttention, parts: AttentionParts, machine: GpuModel, together: int) -> float:
    """Multiply-adds of an SM in the time that a block of keys takes ``together`` groups."""
    across = s.threads // (s.rows // s.thread_rows)
    keys, wide = s.keys // across, across * s.lanes
    columns = -(-parts.width // wide) * s.lanes
    depth = -(-parts.depth // s.lanes) * s.lanes
    products = s.thread_rows * (keys * depth + columns * s.keys)
    loads = (s.thread_rows + keys) * depth + (s.thread_rows + columns) * s.keys
    copies = s.keys * (parts.depth + parts.width) // s.threads
    weighed = s.thread_rows * (keys * SCORE + ROW + columns)
    each = products + (loads * LOAD + copies * COPY) / s.lanes + weighed
    own = each * s.threads
    alone = own * max(1.0, SCHEDULERS * machine.warp / s.threads)
    waited = BLOCK_CYCLES + VECTOR_CYCLES * (depth + s.keys) / s.lanes
    copied = 2 * COPY_CYCLES * UNIT_PRODUCTS
    return max(together * own, alone + waited * UNIT_PRODUCTS, copied)
