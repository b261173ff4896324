"""What kernels take of a GPU, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import launch_extents
from modelcc.targets.c.names import symbol
from modelcc.targets.cuda.chips import Chip
from modelcc.targets.cuda.tools import KernelResources
from modelcc.targets.llvm.groups import shared_bytes

_HEAD = ("kernel", "threads", "registers", "spilled", "shared", "occupancy")


def kernel_report(
    functions: Sequence[Function], uses: Mapping[str, KernelResources], chip: Chip
) -> str:
    """A table of ``functions``: threads of a group, registers of a thread, bytes of spilled
    registers and of shared memory, and the part of a processor's threads that are there."""
    rows = [_HEAD, *(_row(function, uses[symbol(function.name)], chip) for function in functions)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEAD))]
    lines = (
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )
    return "\n".join(lines) + "\n"


def _row(function: Function, use: KernelResources, chip: Chip) -> tuple[str, ...]:
    threads = 1
    for extent in launch_extents(function)[1]:
        assert isinstance(extent, int)
        threads *= extent
    shared = max(use.shared, shared_bytes(function))
    part = chip.gpu.occupancy(threads, use.registers, shared)
    numbers = (threads, use.registers, use.spilled, shared)
    return (symbol(function.name), *map(str, numbers), f"{part:.0%}")
