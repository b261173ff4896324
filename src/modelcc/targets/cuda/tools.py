"""NVIDIA's assembler and disassembler, where they are installed: from the packages
``nvidia-cuda-nvcc`` and ``nvidia-cuda-nvdisasm``, or on the path."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path

from modelcc.ir.errors import Error
from modelcc.targets.cuda.chips import Chip

_FUNCTION = re.compile(r"Compiling entry function '(\S+)'")
_ENTRY = re.compile(r"\.entry (?P<name>\w+)\([^)]*\)\s*\.reqntid (?P<threads>[\d, ]+)")
_WHOLE = re.compile(r"^(\.visible )?\.entry (?P<name>\w+)\(.*?^\}", re.MULTILINE | re.DOTALL)
_NUMBERS = {
    "registers": re.compile(r"Used (\d+) registers"),
    "shared": re.compile(r"(\d+) bytes smem"),
    "stack": re.compile(r"(\d+) bytes stack frame"),
    "stored": re.compile(r"(\d+) bytes spill stores"),
    "loaded": re.compile(r"(\d+) bytes spill loads"),
}


_REGISTERS = 8
"""How readily ptxas uses registers, from 0 to 10.  By default (5) it keeps to 40 and spills in
tiles of 4 by 8 results (4 kernels of ResNet-50 and BERT); with 8 these take 43 and none spills."""

_MORE = (1.25, 1.5, 2)
"""Multiples of the registers that a spilling kernel has taken, which are tried as limits: ptxas
spills with 40 and with 56, and not with 48."""

_LESS = (240, 224, 200)
"""Limits that are tried for kernels that spill with all registers: ptxas has no allocation for
products of 128 by 256 in 255 and in 248, but in 240 and in 224; for sums of four parts in 200."""

_FEWER, _FEW = 12, 8
"""Registers that a kernel may have to give up for one more group per SM, if there are few groups:
ptxas takes 130 for tiles of 8 by 8 results, and 128 leave room for a second; 72 for a product that
prefetches an operand, and 64 leave room for an eighth."""


class CudaToolError(Error):
    """One of NVIDIA's tools is missing, or rejects its input; says what to do."""


@dataclass(frozen=True)
class KernelResources:
    """Resources of a kernel: registers of a thread, bytes of shared memory and of stack, and bytes
    of spill stores and loads."""

    registers: int = 0
    shared: int = 0
    stack: int = 0
    stored: int = 0
    loaded: int = 0

    @property
    def spilled(self) -> int:
        """Bytes of spills."""
        return self.stored + self.loaded


@dataclass(frozen=True)
class Cubin:
    """Machine code of a module, and the resources of its kernels."""

    code: bytes
    uses: dict[str, KernelResources]


def find_tool(name: str) -> str | None:
    """The path of ``ptxas`` or ``nvdisasm``; None if it is not installed."""
    spec = find_spec("nvidia")
    folders = (spec.submodule_search_locations or ()) if spec else ()
    found = (path for folder in folders for path in sorted(Path(folder).glob(f"*/bin/{name}")))
    first = next(found, None)
    return shutil.which(name) if first is None else str(first)


def assemble(ptx: str, chip: Chip) -> Cubin:
    """Machine code of PTX; :class:`CudaToolError` if there is no ``ptxas`` or it rejects the PTX.

    A kernel that spills gets more registers, as few more as avoid that, or else fewer.  One that
    takes a few more than would allow another group per SM is limited to these, unless it would
    spill.
    """
    threads = _threads(ptx)
    made, bounds = _with_less(ptx, *_with_more(ptx, threads, chip), threads, chip)
    sound = {n: use for n, use in made.uses.items() if n in threads and not use.spilled}
    fewer = {n: number for n, use in sound.items() if (number := _fewer(use, threads[n], chip))}
    enough = {n: number for n, number in fewer.items() if _fits(ptx, n, number, chip)}
    return _assembled(_bounded(ptx, {**bounds, **enough}), chip) if enough else made


def _with_more(ptx: str, threads: Mapping[str, int], chip: Chip) -> tuple[Cubin, dict[str, int]]:
    """Machine code, and the register limits of kernels that spilled without them."""
    made, bounds = _assembled(ptx, chip), dict[str, int]()
    first = made.uses
    for share in _MORE:
        more = {
            name: most
            for name, use in made.uses.items()
            if use.spilled
            and name in threads
            and (most := _most(int(first[name].registers * share), threads[name], chip))
            > first[name].registers
        }
        if not more.items() - bounds.items():
            break
        bounds |= more
        made = _assembled(_bounded(ptx, bounds), chip)
    return made, bounds


def _with_less(
    ptx: str, made: Cubin, bounds: Mapping[str, int], threads: Mapping[str, int], chip: Chip
) -> tuple[Cubin, Mapping[str, int]]:
    """The same, with other limits for kernels that still spill, if these avoid it."""
    for number in _LESS:
        less = {
            name: number
            for name, use in made.uses.items()
            if use.spilled and name in threads and use.registers > number
        }
        ended = {n: most for n, most in less.items() if _fits(ptx, n, most, chip)}
        if ended:
            bounds = {**bounds, **ended}
            made = _assembled(_bounded(ptx, bounds), chip)
    return made, bounds


def _fits(ptx: str, kernel: str, registers: int, chip: Chip) -> bool:
    """Whether a kernel, assembled on its own, does not spill with this many registers."""

    def kept(found: re.Match[str]) -> str:
        return found[0] if found["name"] == kernel else ""

    alone = _WHOLE.sub(kept, ptx)
    try:
        use = _assembled(_bounded(alone, {kernel: registers}), chip).uses[kernel]
    except CudaToolError:
        return False  # an instruction needs more
    return not use.spilled


def _threads(ptx: str) -> Mapping[str, int]:
    """Threads of a group, by kernels without a register limit of their own."""
    return {
        found["name"]: prod(map(int, found["threads"].split(", ")))
        for found in _ENTRY.finditer(ptx)
    }


def _most(registers: int, threads: int, chip: Chip) -> int:
    """``registers`` of a thread, or as many as there are."""
    return min(registers, chip.gpu.registers // threads, chip.gpu.thread_registers) // 8 * 8


def _fewer(use: KernelResources, threads: int, chip: Chip) -> int:
    """Registers that allow one more group per SM; 0 if that would take too many away."""
    each = -(-use.registers // 8) * 8
    groups = chip.gpu.registers // max(each * threads, 1) + 1
    number = chip.gpu.registers // (groups * threads) // 8 * 8
    room = groups * threads <= chip.gpu.unit_threads and groups <= _FEW
    return number if room and number >= use.registers - _FEWER else 0


def _bounded(ptx: str, bounds: Mapping[str, int]) -> str:
    """``ptx`` with a register limit for each of these kernels."""

    def given(found: re.Match[str]) -> str:
        number = bounds.get(found["name"])
        return f"{found[0]}\n.maxnreg {number}" if number else found[0]

    return _ENTRY.sub(given, ptx)


def _assembled(ptx: str, chip: Chip) -> Cubin:
    tool = find_tool("ptxas")
    if tool is None:
        raise CudaToolError(
            "there is no ptxas on this machine; pip install nvidia-cuda-nvcc, or leave PTX to the "
            "driver of the machine that runs it"
        )
    with tempfile.TemporaryDirectory() as folder:
        source, result = Path(folder, "kernels.ptx"), Path(folder, "kernels.cubin")
        source.write_text(ptx)
        options = ["-v", f"-arch={chip.name}", f"--register-usage-level={_REGISTERS}"]
        words = _run([tool, *options, str(source), "-o", str(result)])
        return Cubin(result.read_bytes(), read_uses(words))


def read_uses(words: str) -> dict[str, KernelResources]:
    """The output of ``ptxas -v`` for each kernel."""
    found: dict[str, KernelResources] = {}
    _, *parts = _FUNCTION.split(words)
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        numbers = {key: pattern.search(text) for key, pattern in _NUMBERS.items()}
        found[name] = KernelResources(**{key: int(m[1]) for key, m in numbers.items() if m})
    return found


def disassemble(code: bytes) -> str:
    """Machine code as text (SASS); :class:`CudaToolError` if there is no ``nvdisasm``."""
    tool = find_tool("nvdisasm")
    if tool is None:
        raise CudaToolError("there is no nvdisasm here; pip install nvidia-cuda-nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernels.cubin")
        source.write_bytes(code)
        return _run([tool, str(source)])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        first = "\n".join((done.stderr or done.stdout).strip().splitlines()[:8])
        raise CudaToolError(f"{Path(command[0]).name} refuses the kernels:\n{first}")
    return done.stdout + done.stderr
