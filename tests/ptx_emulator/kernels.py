"""Scheduled programs, kernel by kernel, as PTX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from kernel_runs import Executor, functions_of
from ptx_emulator.driver import PtxDriver
from ptx_emulator.traffic import Traffic

from modelcc.ir.index import Index, evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import checks_in, launch_extents, launched_groups
from modelcc.ir.program import Program
from modelcc.ir.types import Array
from modelcc.runtime.streams.cuda_device import CudaDevice
from modelcc.targets.c.names import symbol
from modelcc.targets.cuda.chips import Chip
from modelcc.targets.cuda.text import llvm_text, ptx_text
from modelcc.targets.llvm.dialect import NVPTX

_MEMORY = 1 << 26


def emulated(
    program: Program, chip: Chip, early: bool = False, traffic: Traffic | None = None
) -> Executor:
    """Compiles all functions for ``chip``; copies and products beside threads are done as
    ``early`` as they may be, or as late, and requests for memory counted in ``traffic``."""
    functions = {f.name: f for f in functions_of(program)}
    ptx = ptx_text(llvm_text([*functions.values()], chip), chip)

    def run(name: str, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        function = functions[name]
        given = dict(zip(function.sizes, sizes, strict=True))
        run_ptx(ptx, function, arrays, given, early, traffic)

    return run


def run_ptx(
    ptx: str,
    function: Function,
    arrays: Sequence[Array],
    sizes: Mapping[str, int],
    early: bool,
    traffic: Traffic | None = None,
) -> None:
    """Run what stands for ``function`` in a text, in place; IndexError if it notes an index that
    is out of range."""
    device, name = CudaDevice(PtxDriver(early, _MEMORY, traffic), 0), symbol(function.name)
    groups, threads = launch_extents(function)
    grid, threads = (_in_three(e, sizes) for e in (launched_groups(groups, NVPTX.across), threads))
    device.load(ptx.encode(), {name: threads})
    notes = np.zeros(2 * checks_in(function), np.int64)
    given = [*arrays, *([notes] if len(notes) else [])]
    held = [device.allocate(a.nbytes) for a in given]
    for memory, array in zip(held, given, strict=True):
        device.upload(memory, 0, array.ctypes.data, array.nbytes)
    if 0 not in grid:
        device.launch(name, [(memory, 0) for memory in held], [*sizes.values()], grid)
    written = [*(p.mutable for p in function.parameters), True]
    for memory, array, is_written in zip(held, given, written, strict=False):
        if is_written:
            device.download(memory, 0, array.ctypes.data, array.nbytes)
    if notes[::2].any():
        raise IndexError(f"an index out of range: {notes}")


def _in_three(extents: Sequence[Index], sizes: Mapping[str, int]) -> tuple[int, int, int]:
    """Extents along x, y and z."""
    x, y, z, *_ = (*(evaluate(n, sizes) for n in extents), 1, 1, 1)
    return x, y, z
