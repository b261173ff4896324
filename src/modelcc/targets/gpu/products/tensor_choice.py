"""Tile sizes of products on tensor cores, by expected time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from modelcc.ir.tensor import Guard
from modelcc.ir.types import BF16, F32, DType
from modelcc.schedule.group_schedule import TensorProduct
from modelcc.targets.gpu.contraction import Contraction, KeptFactor
from modelcc.targets.gpu.machine import GpuModel
from modelcc.targets.gpu.partial_sums import CACHED_BYTES, parts_cycles, parts_of
from modelcc.targets.gpu.products.box_operand import BoxProduct
from modelcc.targets.gpu.products.epilogue_staging import TOGETHER, slab_pitch
from modelcc.targets.gpu.products.operand_tile import vector_lanes
from modelcc.targets.gpu.products.staged_tile import REGISTER, VECTOR_BYTES, has_rows_of_terms
from modelcc.targets.gpu.products.tensor_product import (
    DEEP,
    EXACT,
    MATRICES,
    SPLIT,
    WHOLE_MATRICES,
    WHOLE_ROWS,
    families,
    pad_bytes,
)
from modelcc.targets.gpu.products.warpgroup_product import BOXES, is_turned, tile_bytes
from modelcc.targets.gpu.sizes import count
from modelcc.targets.isa.fragments import SIDE, fragment_bytes, sums_of
from modelcc.targets.isa.fragments import depth as fragment_depth
from modelcc.targets.isa.tile_products import depth

TILES = (
    TensorProduct(128, 256, 64, 2, 4, 2),
    TensorProduct(256, 128, 64, 4, 2, 2),
    TensorProduct(128, 128, 64, 2, 2, 2),
    TensorProduct(128, 128, 32, 2, 2, 3),
    TensorProduct(128, 128, 32, 2, 4, 2),
    TensorProduct(128, 64, 64, 2, 2, 3),
    TensorProduct(64, 128, 64, 2, 2, 3),
    TensorProduct(64, 64, 64, 2, 2, 4),
    TensorProduct(64, 32, 64, 2, 2, 4),
    TensorProduct(32, 64, 64, 2, 2, 4),
    TensorProduct(32, 32, 64, 1, 2, 4),
    TensorProduct(16, 128, 64, 1, 4, 4),
    TensorProduct(128, 16, 64, 4, 1, 4),
    TensorProduct(16, 64, 64, 1, 4, 4),
    TensorProduct(64, 16, 64, 4, 1, 4),
)
"""Tiles for elements of 2 bytes; with smaller ones there are more terms (K)."""

SPLIT_TILES = (
    TensorProduct(128, 128, 64, 2, 4, 3),
    TensorProduct(128, 128, 64, 2, 4, 2),
    TensorProduct(128, 64, 64, 2, 2, 2),
    TensorProduct(64, 128, 64, 2, 2, 2),
    TensorProduct(128, 64, 32, 2, 2, 4),
    TensorProduct(64, 128, 32, 2, 2, 4),
    *TILES,
)
"""The same for split operands, whose fragments take three times as many registers: warps have at
most 64 by 32 results."""

HELD_TILES = tuple(
    replace(tile, copies=False)
    for tile in (
        TensorProduct(256, 256, 64, 2, 4, 2),
        TensorProduct(256, 256, 64, 2, 4, 1),
        TensorProduct(256, 256, 32, 2, 4, 2),
        TensorProduct(256, 256, 32, 2, 4, 1),
        TensorProduct(256, 128, 32, 2, 2, 1),
        TensorProduct(128, 256, 32, 2, 2, 1),
        TensorProduct(128, 128, 32, 2, 2, 1),
        TensorProduct(128, 128, 64, 2, 2, 1),
        TensorProduct(128, 64, 64, 2, 2, 1),
        TensorProduct(64, 128, 64, 2, 2, 1),
        TensorProduct(64, 64, 64, 2, 2, 1),
        TensorProduct(64, 64, 64, 2, 2, 2),
        TensorProduct(64, 32, 64, 2, 2, 2),
        TensorProduct(32, 64, 64, 2, 2, 2),
        TensorProduct(32, 32, 64, 1, 2, 2),
        TensorProduct(16, 128, 64, 1, 4, 2),
        TensorProduct(128, 16, 64, 4, 1, 2),
        TensorProduct(16, 64, 64, 1, 4, 2),
        TensorProduct(64, 16, 64, 4, 1, 2),
    )
)
"""Those of machines where operands pass through registers, as :data:`TILES`: with one buffer, they
take little shared memory, so that an SM has several groups."""

SMALL_WAVE_TILES = tuple(
    replace(tile, copies=False)
    for tile in (
        TensorProduct(256, 128, 32, 4, 2, 1),
        TensorProduct(128, 256, 32, 2, 4, 1),
        TensorProduct(128, 128, 32, 2, 4, 1),
        TensorProduct(128, 128, 32, 4, 2, 1),
    )
)
"""Besides :data:`HELD_TILES`, for waves of 32 threads, which have at most 64 by 64 results."""

BOX_TILES = tuple(
    replace(tile, instruction=BOXES)
    for tile in (
        TensorProduct(128, 256, 64, 2, 1, 4),
        TensorProduct(128, 192, 64, 2, 1, 4),
        TensorProduct(128, 128, 64, 2, 1, 3),
        TensorProduct(128, 64, 64, 2, 1, 4),
        TensorProduct(64, 256, 64, 1, 1, 4),
        TensorProduct(64, 128, 64, 1, 1, 4),
        TensorProduct(64, 64, 64, 1, 1, 4),
        TensorProduct(32, 256, 64, 1, 4, 4),
        TensorProduct(32, 128, 64, 1, 2, 4),
        TensorProduct(32, 64, 64, 1, 1, 6),
        TensorProduct(16, 128, 64, 1, 2, 4),
        TensorProduct(16, 64, 64, 1, 1, 6),
        TensorProduct(8, 128, 64, 1, 2, 4),
        TensorProduct(8, 64, 64, 1, 1, 6),
    )
)
"""Tiles of operands that TMA copies as boxes; those of few rows are multiplied transposed."""

SHARED_BYTES = 128
"""Bytes per cycle that an SM moves from and to shared memory."""

LATENCY_CYCLES = 1000
"""Memory latency, roughly: an SM gets no more in this time than is in flight."""

RESULTS = 32
"""Results that a thread finishes together.  Without prefetching, it waits for operands once per
such round: an H100 took 600 cycles with a bias, 2000 with a residual from memory."""

BORDER = 4
"""Registers for a vector of an image with borders: an address and two indices, for conditions."""

ADDRESSES = 16
"""Registers for addresses of prefetched operands, and of results at the same places."""

SPLIT_MORE, SPLIT_BORDERS = 8, 3
"""Registers for products of split fragments before they are added to sums; and the factor by which
ptxas takes more for images with borders then."""

ADDRESS = 2
"""Registers of an address."""

PRODUCTS = {
    "wgmma": 2048,
    EXACT: 256,
    DEEP: 2048,
    SPLIT: 1024 / 3,
    MATRICES: 128,
    WHOLE_MATRICES: 256,
    WHOLE_ROWS: 512,
}
USUAL_PRODUCTS = 1024
"""Multiply-adds of an SM per cycle, with elements of 2 bytes, by instructions."""

SCHEDULERS, OF_PAIR, OF_FRAGMENT = 4, 14, 22
"""Warp schedulers of an SM, each of which issues an instruction per cycle, and the instructions of
a warp for a pair of split fragments and for either: 6 products and 8 sums, and 5 for each of the
four elements that a thread has of it, and its loads."""

HIDDEN = 0.9
"""The part of the shorter times that overlaps with the longest."""

FEWEST_BUFFERS = 3
"""Buffers of tiles beside sums in shared memory: two blocks are in flight while one is used."""

BLOCK_CYCLES = 40
"""Cycles from a barrier to the products after it, without other warps to fill them."""

REFILL_CYCLES = 300
"""The same with a single buffer, which is stored between two barriers and loaded after them;
estimated from shared-memory latencies, not measured."""

GROUP_CYCLES = 1500
"""Cycles until the first tiles have arrived, and from the last sums to the end."""


def tensor_tiles(
    found: Contraction,
    dtype: DType,
    machine: GpuModel,
    boxes: BoxProduct | None = None,
    kept: DType = F32,
) -> Iterator[TensorProduct]:
    """Tiles whose groups an SM can run, the best first; none if ``machine`` has no instruction for
    operands of ``dtype``, which may be copied as ``boxes``.  Sums may be ``kept`` in that type."""
    tiles = [
        replace(t, terms=t.terms * 2 // dtype.bytes, instruction=family, warp=machine.warp)
        for family in [family for family in families(dtype) if family in machine.matrix][:1]
        for t in _known_tiles(family, machine)
    ]
    if boxes is not None:
        boxed = [replace(t, terms=depth(dtype)) for t in BOX_TILES]
        boxed = [t for t in boxed if not (is_turned(t) and boxes.turned[0])]
        boxed = [t for t in boxed if boxes.takes(t.columns)]
        even = [replace(t, buffers=t.buffers + t.buffers % 2) for t in boxed]
        tiles = [*(even if dtype.bytes == 1 else boxed), *tiles]
    known = (t for t in tiles if t.instruction in machine.matrix and _has_whole(t, found))
    tiles = [cut for one in known for cut in _in_parts(one, found, machine, boxes)]
    if boxes is not None and dtype.bytes == BF16.bytes:
        tiles += [p for one in tiles for p in _persistent(one, dtype, machine, boxes, kept)]
    fitting: list[tuple[float, int, TensorProduct]] = []
    for rank, one in enumerate(tiles):
        one = _with_spare(one, found, dtype, machine)
        time = tensor_time(one, found, dtype, machine, boxes)
        if time is not None:
            fitting.append((time, rank, one))
    yield from (tile for _, _, tile in sorted(fitting, key=lambda f: f[:2]))


def _known_tiles(family: str, machine: GpuModel) -> Sequence[TensorProduct]:
    """Tiles for elements of 2 bytes."""
    if machine.copies:
        return SPLIT_TILES if family == SPLIT else TILES
    small = machine.warp == 32 and family not in (MATRICES, WHOLE_MATRICES)
    return (*SMALL_WAVE_TILES, *HELD_TILES) if small else HELD_TILES


def _has_whole(tile: TensorProduct, found: Contraction) -> bool:
    """Whether warps have whole fragments of the columns of each twin product."""
    fragments = SIDE * tile.warp_columns * len(found.rights)
    return tile.instruction == BOXES or tile.columns % fragments == 0


def _with_spare(
    tile: TensorProduct, found: Contraction, dtype: DType, machine: GpuModel
) -> TensorProduct:
    """``tile`` with the registers that are left for prefetching, if an SM is to run as many of its
    groups; none for 8-bit floats, whose sums are kept three times."""
    if tile.instruction != BOXES or tile.parts > 1 or tile.groups or dtype.bytes == 1:
        return tile
    taken = tensor_registers(tile, dtype)
    at_once = machine.groups_at_once(tile.threads, taken, tensor_bytes(tile, found, dtype))
    if not at_once:
        return tile
    most = min(machine.thread_registers, machine.registers // (at_once * tile.threads)) // 8 * 8
    return replace(tile, ahead=max(most - taken - ADDRESSES, 0))


def _in_parts(
    tile: TensorProduct, found: Contraction, machine: GpuModel, boxes: BoxProduct | None
) -> Iterator[TensorProduct]:
    """``tile`` whole, and with split-K; ``boxes`` may have more terms, zeros up to a block."""
    yield tile
    cut = boxes.found if boxes is not None and tile.instruction == BOXES else found
    for parts in parts_of(tile.rows, tile.columns, tile.terms, cut, machine):
        yield replace(tile, parts=parts)


def _persistent(
    tile: TensorProduct, dtype: DType, machine: GpuModel, boxes: BoxProduct, kept: DType
) -> Iterator[TensorProduct]:
    """``tile`` with persistent groups, if each has more than one tile, and enough blocks of terms
    to overlap the epilogue of another one."""
    found = boxes.found
    extents = [v.extent for v in (*found.batch, *found.rows, *found.columns, *found.terms)]
    if tile.instruction != BOXES or tile.parts > 1 or not all(isinstance(n, int) for n in extents):
        return
    results = tile.rows * found.own(tile.columns)
    slices, left = divmod(results, tile.threads * TOGETHER)
    if left or -(-count(found.terms) // tile.terms) <= max(slices, tile.buffers):
        return
    kept = F32 if is_turned(tile) else kept
    for buffers in range(tile.buffers, FEWEST_BUFFERS - 1, -1):
        one = replace(tile, buffers=buffers, groups=machine.units)
        used = one.threads, tensor_registers(one, dtype), tensor_bytes(one, found, dtype, kept)
        groups = machine.units * machine.groups_at_once(*used)
        if groups:
            if _tiles_of(one, found, boxes) > groups:
                yield replace(one, groups=groups)
            return


def _tiles_of(tile: TensorProduct, found: Contraction, boxes: BoxProduct | None) -> int:
    """Tiles of results."""
    if boxes is not None and tile.instruction == BOXES:
        rows = boxes.count_tiles(tile.rows)
    else:
        rows = -(-count(found.rows) // tile.rows)
    return rows * -(-count(found.columns) // found.own(tile.columns)) * count(found.batch)


def tensor_time(
    tile: TensorProduct,
    found: Contraction,
    dtype: DType,
    machine: GpuModel,
    boxes: BoxProduct | None = None,
) -> float | None:
    """Cycles that a tile is expected to take; None if an SM cannot run its groups.

    A block of terms takes the time of its products, of its traffic through shared memory or of its
    loads from L2, whichever is longest, and a part of the others.  Concurrent groups have as many
    bytes in flight as fill all buffers but one, or the registers that hold a block; Little's law
    gives the throughput.

    With ``parts``, a group has as many times fewer blocks, followed by
    :func:`~modelcc.targets.gpu.partial_sums.parts_cycles`.  Persistent groups finish one tile while
    they multiply the next; only the stores of the sums are not overlapped.
    """
    registers = tensor_registers(tile, dtype, found)
    at_once = tile.groups // machine.units or machine.groups_at_once(
        tile.threads, registers, tensor_bytes(tile, found, dtype)
    )
    if not at_once:
        return None
    boxed = boxes.found if boxes is not None and tile.instruction == BOXES else found
    terms = count(boxed.terms)
    per_unit = -(-_tiles_of(tile, found, boxes) * tile.parts // machine.units)
    item = dtype.bytes
    sides, bytes_of_terms = tile.rows + tile.columns, tile.terms * item
    rate = PRODUCTS.get(tile.instruction, USUAL_PRODUCTS)
    if tile.instruction == WHOLE_ROWS:  # bytes take as long as halves
        rate *= dtype.bytes / BF16.bytes
    products = max(tile.rows * tile.columns * bytes_of_terms / (2 * rate), _issued(tile, dtype))
    read = tile.rows * tile.warp_columns + tile.columns * tile.warp_rows
    moved = (read + sides) * bytes_of_terms / SHARED_BYTES
    together = min(per_unit, at_once)
    ahead = tile.buffers - 1 if tile.copies else 1
    coming = together * ahead * sides * bytes_of_terms
    cached = sides * bytes_of_terms / min(CACHED_BYTES, coming / LATENCY_CYCLES)
    blocks = -(-terms // (tile.terms * tile.parts))
    most = max(products, moved, cached)
    apart = BLOCK_CYCLES if tile.buffers > 1 else REFILL_CYCLES
    block = most + (1 - HIDDEN) * (products + moved + cached - most) + apart / together
    results = tile.rows * tile.columns * 12 / SHARED_BYTES
    if tile.groups:
        sums = tile.rows * tile.columns * F32.bytes / SHARED_BYTES
        longer, shorter = max(blocks * block, results), min(blocks * block, results)
        tiles = per_unit * (longer + (1 - HIDDEN) * shorter + sums)
        return tiles + GROUP_CYCLES + results + LATENCY_CYCLES / together
    results += _waiting(tile, found, min(tile.buffers, blocks) * block) / together
    whole = per_unit * (blocks * block + GROUP_CYCLES / together)
    if tile.parts == 1:
        return whole + per_unit * results
    return whole + parts_cycles(tile.rows, tile.columns, tile.parts, per_unit)


def _issued(tile: TensorProduct, dtype: DType) -> float:
    """Cycles in which an SM issues a block's instructions for split operands."""
    if tile.instruction != SPLIT:
        return 0.0
    pairs = tile.rows * tile.columns / SIDE**2
    fragments = (tile.rows * tile.warp_columns + tile.columns * tile.warp_rows) / SIDE
    steps = tile.terms / fragment_depth(dtype)
    return steps * (OF_PAIR * pairs + OF_FRAGMENT * fragments) / SCHEDULERS


def split_pays(machine: GpuModel) -> bool:
    """Whether three products at half the rate of f16 are faster than f32 by FMA."""
    return machine.matrix_flops / (2 * 3) > machine.flops


def _waiting(tile: TensorProduct, found: Contraction, ahead: float) -> float:
    """Cycles that a group waits for the epilogue's loads of 2 bytes per result.  With boxes,
    threads issue as many as they have registers for ``ahead`` cycles before the sums are complete,
    and the rest at once when these are in shared memory; others issue them round by round."""
    results = -(-tile.rows * found.own(tile.columns) // tile.threads)
    if tile.instruction != BOXES:
        return -(-results // RESULTS) * LATENCY_CYCLES
    return max(LATENCY_CYCLES - ahead, 0) if tile.ahead >= results / 2 else LATENCY_CYCLES


def tensor_bytes(tile: TensorProduct, found: Contraction, dtype: DType, kept: DType = F32) -> int:
    """Shared memory of a group: tiles of operands, and a row of fragments of whole sums, or all of
    them, ``kept`` in that type."""
    if tile.instruction == BOXES:
        return tile_bytes(tile, F32 if is_turned(tile) else kept)
    left = _operand_bytes(found.left, tile.rows, tile, dtype)
    own = found.own(tile.columns)
    right = sum(_operand_bytes(factor, own, tile, dtype) for factor in found.rights)
    sums = SIDE * tile.warp_rows * slab_pitch(tile.columns) * sums_of(dtype).bytes
    tiles = tile.buffers * (left + right)
    if not tile.copies:
        return max(tiles, sums) if tile.parts == 1 else tiles
    return tiles + (sums if tile.parts == 1 else 0)


def _operand_bytes(operand: KeptFactor, size: int, tile: TensorProduct, dtype: DType) -> int:
    by_term = has_rows_of_terms(operand)
    rows, row = (size, tile.terms) if by_term else (tile.terms, size)
    return rows * (row * dtype.bytes + pad_bytes(operand, tile))


def tensor_registers(
    tile: TensorProduct, dtype: DType = BF16, found: Contraction | None = None
) -> int:
    """Registers a thread is expected to take: sums, fragments of ``dtype`` for two steps, held
    elements of the next block of ``found``, and addresses, including those of images with
    borders."""
    sums = tile.rows * tile.columns // tile.threads
    if tile.instruction == BOXES:
        kept = sums if tile.terms == depth(BF16) else 3 * sums
        return kept + (80 if tile.groups else 48) + tile.ahead
    fragments = tile.rows // tile.warp_rows + tile.columns // tile.warp_columns
    kept = fragments * fragment_bytes(tile.warp) // (2 * SIDE)
    more = (_of_borders if tile.copies else _held)(tile, dtype, found)
    if tile.instruction == SPLIT:
        kept, more = kept + kept // 2 + SPLIT_MORE, SPLIT_BORDERS * more
    return sums + kept + more + 32


def _of_borders(tile: TensorProduct, dtype: DType, found: Contraction | None) -> int:
    """Registers for addresses and indices of a thread's copies of images with borders, per
    vector."""
    if found is None:
        return 0
    copied = tile.terms * dtype.bytes // VECTOR_BYTES
    own = found.own(tile.columns)
    sides = (found.left, tile.rows), *((factor, own) for factor in found.rights)
    along = sum(size for operand, size in sides if isinstance(operand.value, Guard))
    return BORDER * (along * copied // tile.threads)


def _held(tile: TensorProduct, dtype: DType, found: Contraction | None) -> int:
    """Registers of a block's vectors: single elements need an address each, and those that are
    transposed on the way a register each."""
    if found is None:
        return (tile.rows + tile.columns) * tile.terms * dtype.bytes // (4 * tile.threads)
    own = found.own(tile.columns)
    rights = ((factor, found.columns, own) for factor in found.rights)
    total = 0
    for operand, along, size in ((found.left, found.rows, tile.rows), *rights):
        most = VECTOR_BYTES // dtype.bytes
        lanes = vector_lanes(operand, along, found.terms, (size, tile.terms), most)
        turned = has_rows_of_terms(operand) and not operand.by_term
        each = lanes if turned else -(-lanes * dtype.bytes // REGISTER)
        each += ADDRESS if lanes == 1 else 0
        total += -(-size * tile.terms // (lanes * tile.threads)) * each
    return total
