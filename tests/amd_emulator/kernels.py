"""Kernels for AMD's GPUs, run by their LLVM text on the host."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from amd_emulator.text import CALLED, host_text
from kernel_runs import Executor, Guarded, functions_of

from modelcc.ir.index import Index, evaluate
from modelcc.ir.loop_traversal import checks_in, launch_extents
from modelcc.ir.program import Program
from modelcc.ir.types import Array
from modelcc.runtime.loader import load_objects
from modelcc.targets.amdgpu.chips import CHIPS
from modelcc.targets.amdgpu.target import kernels_of
from modelcc.targets.c.names import symbol
from modelcc.targets.native.toolchain import CodegenOptions, compile_llvm, host_machine

Groups = tuple[int, int, int]
Range = tuple[int, int]
"""Address and bytes."""

_SOURCE = Path(__file__).with_name("threads.c")
_FAULTS = (
    "",
    "touches memory that it was not given",
    "is not aligned",
    "takes registers of a thread that is elsewhere",
    "is no barrier of all threads of the group",
    "waits for threads that have ended",
    "has other numbers in threads that have the same row",
)


class GpuFaultError(Exception):
    """What a GPU does not do, or not the same each time."""


@cache
def _library() -> Any:
    """``threads.c``, which stays in this process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "threads.so")
        command = ["cc", "-O2", "-shared", "-fPIC", "-U_FORTIFY_SOURCE", "-o", str(file)]
        subprocess.run([*command, str(_SOURCE), "-lm"], check=True)
        return ctypes.CDLL(str(file))


class HostKernels:
    """Those of LLVM text for waves of so many threads, as machine code of the host; the last groups
    and threads go first if ``backwards``."""

    def __init__(self, text: str, wave: int, backwards: bool = False) -> None:
        machine, library = host_machine(), _library()
        found = host_text(text, machine.triple)
        self.kernels = found.kernels
        self._lines, self._wave, self._backwards = found.lines, wave, int(backwards)
        places = {name: _address(library[name]) for name in CALLED}
        obj = compile_llvm(found.text, machine, CodegenOptions(optimize=1))
        self._code = load_objects([obj], places, _system)
        self._shared = [(self._code.address(n), size) for n, size in found.shared.items()]
        self._launch = library.amd_launch

    def run(self, name: str, given: Sequence[int], grid: Groups, ranges: Sequence[Range]) -> None:
        """A kernel with addresses and sizes ``given``, which may touch these ``ranges``;
        GpuFaultError."""
        kernel = self.kernels[name]
        assert len(given) == kernel.buffers + kernel.sizes
        words = (ctypes.c_int64 * max(1, len(given)))(*given)
        where, entry = ctypes.c_int(), ctypes.c_void_p(self._code.address(f"{name}.entry"))
        known = [*self._shared, *ranges]
        status = self._launch(
            entry, words, _three(grid), _three(kernel.threads), _table(self._shared),
            len(self._shared), _table(known), len(known), self._wave, self._backwards,
            ctypes.byref(where),
        )  # fmt: skip
        if status:
            raise GpuFaultError(f"{name} {_FAULTS[status]}: {self._lines[where.value].strip()}")


def run_kernel(text: str, arrays: Sequence[Array], backwards: bool = False, wave: int = 64) -> None:
    """The one kernel in a text, by one group of waves of so many threads, on ``arrays`` in
    place."""
    code = HostKernels(text, wave, backwards)
    (name,) = code.kernels
    held = [Guarded.of(a.shape, a.dtype).array for a in arrays]
    for to, array in zip(held, arrays, strict=True):
        to[...] = array
    ranges = [(a.ctypes.data, a.nbytes) for a in held]
    code.run(name, [address for address, _ in ranges], (1, 1, 1), ranges)
    for array, source in zip(arrays, held, strict=True):
        array[...] = source


def _table(ranges: Sequence[Range]) -> Any:
    return (ctypes.c_uint64 * (2 * len(ranges) + 1))(*(n for pair in ranges for n in pair))


def _three(extents: Groups) -> Any:
    return (ctypes.c_uint32 * 3)(*extents)


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def _system(name: str) -> int:
    """What LLVM calls of the compiler's library and of the one for mathematics."""
    for library in ("libm.so.6", "libgcc_s.so.1"):
        try:
            return _address(ctypes.CDLL(library)[name])
        except (OSError, AttributeError):
            continue
    return 0


def emulated(program: Program, chip: str, backwards: bool = False) -> Executor:
    """All functions of a program, as they are printed for ``chip``."""
    functions = {f.name: f for f in functions_of(program)}
    kernels = kernels_of(chip)
    legal = [kernels.legal(f) for f in functions.values()]
    text = kernels.text(legal, CHIPS[chip].limits) if legal else ""
    code = HostKernels(text, CHIPS[chip].warp, backwards)

    def run(name: str, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        function = functions[name]
        named = dict(zip(function.sizes, sizes, strict=True))
        grid, threads = (_in_three(extents, named) for extents in launch_extents(function))
        assert threads == code.kernels[symbol(name)].threads
        notes = np.zeros(2 * checks_in(function), np.int64)
        given = [*arrays, *([notes] if len(notes) else [])]
        ranges = [(a.ctypes.data, a.nbytes) for a in given]
        code.run(symbol(name), [*(r[0] for r in ranges), *sizes], grid, ranges)
        if notes[::2].any():
            raise IndexError(f"an index out of range: {notes}")

    return run


def _in_three(extents: Sequence[Index], sizes: dict[str, int]) -> Groups:
    """Extents along x, y and z."""
    x, y, z, *_ = (*(evaluate(n, sizes) for n in extents), 1, 1, 1)
    return x, y, z
