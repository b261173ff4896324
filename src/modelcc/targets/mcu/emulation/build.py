"""Programs for boards, built by GCC, and their contents."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from modelcc.targets.c.delivery.folder import File
from modelcc.targets.mcu.emulation.boards import BOARDS, SOURCES
from modelcc.targets.mcu.emulation.command import run_command
from modelcc.targets.mcu.libraries.sources import include_flags, sources_of
from modelcc.targets.mcu.machine import McuModel

_EXAMPLE = "example.c"
_FLASH = "tTrRdDwW"
_HELIUM = "armv8.1-m.main"
"""The disassembler's name of processors with vectors, which object files do not tell it."""

_STEP = re.compile(r"mcc_step_(\d+)_\d+")
_DISASSEMBLED = re.compile(r"\s*([0-9a-f]+):\t(\S+)\s*([^;@#<]*)")


@dataclass(frozen=True)
class ElfSymbol:
    """A function or variable: ``kind`` is nm's letter."""

    address: int
    size: int
    kind: str
    name: str


@dataclass(frozen=True)
class BoardProgram:
    """A linked program of ``objects``, in a separate folder, with its run-time files."""

    path: Path
    model: McuModel
    objects: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Its working folder."""
        return self.path.parent

    @cached_property
    def symbols(self) -> tuple[ElfSymbol, ...]:
        """All symbols, by address."""
        return self._symbols(self.path.name)

    @cached_property
    def flash_by_object(self) -> dict[str, dict[str, int]]:
        """Bytes of contents of flash, by name, for each object; those of libraries are under ""."""
        owners = {s.name: one for one in self.objects for s in self._symbols(one) if s.size}
        found: dict[str, dict[str, int]] = {}
        for symbol in self.symbols:
            if symbol.kind in _FLASH and symbol.size:
                found.setdefault(owners.get(symbol.name, ""), {})[symbol.name] = symbol.size
        return found

    def _symbols(self, file: str) -> tuple[ElfSymbol, ...]:
        lines = [line.split() for line in self._tool("nm", "-S", file=file).splitlines()]
        sized = [(w[0], w[1], w[2], w[3]) for w in lines if len(w) == 4]
        sized += [(w[0], "0", w[1], w[2]) for w in lines if len(w) == 3]
        found = [ElfSymbol(int(at, 16) & ~1, int(n, 16), kind, name) for at, n, kind, name in sized]
        return tuple(sorted(found, key=lambda symbol: symbol.address))

    @cached_property
    def steps(self) -> tuple[tuple[int, int], ...]:
        """Addresses at which steps begin, each with the step's number."""
        found = ((s.address, _STEP.fullmatch(s.name)) for s in self.symbols)
        return tuple((address, int(mark[1])) for address, mark in found if mark)

    def address(self, name: str) -> int:
        """The address of a function."""
        return next(symbol.address for symbol in self.symbols if symbol.name == name)

    def function_at(self, address: int) -> str:
        """The function at an address."""
        starts, names = self._functions
        return names[max(0, bisect.bisect_right(starts, address) - 1)]

    @cached_property
    def _functions(self) -> tuple[list[int], list[str]]:
        code = (symbol for symbol in self.symbols if symbol.kind in "tTwW")
        found = [s for s in code if not s.name.startswith("$") and not _STEP.fullmatch(s.name)]
        return [s.address for s in found], [s.name for s in found]

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """Bytes of flash, and of variables."""
        lines = [line.split() for line in self._tool("size", "-A").splitlines()]
        sections = {w[0]: int(w[1]) for w in lines if len(w) == 3 and w[1].isdigit()}
        data = sections.get(".data", 0)
        flash = sections.get(".text", 0) + sections.get(".ARM.exidx", 0) + data
        return flash, data + sections.get(".bss", 0)

    def disassembled(self) -> dict[int, tuple[str, str]]:
        """Name and operands of the instruction at each address."""
        vectors = ["-m", _HELIUM] if "+mve" in self.model.features else []
        lines = self._tool("objdump", "-d", "--no-show-raw-insn", *vectors).splitlines()
        found = (_DISASSEMBLED.match(line) for line in lines)
        return {int(one[1], 16): (one[2], one[3].strip()) for one in found if one}

    def _tool(self, tool: str, *options: str, file: str = "") -> str:
        command = [f"{self.model.compiler}{tool}", *options, file or self.path.name]
        return run_command(command, self.folder)


def build(folder: Path, name: str, model: McuModel, optimize: str = "-O2") -> BoardProgram:
    """The program ``name`` of all C files in ``folder`` but the example.

    :class:`~modelcc.targets.c.toolchain.ToolchainError` if the compiler rejects one.
    """
    board = BOARDS[model.name]
    places = {
        "FLASH": board.flash, "FLASH_BYTES": board.flash_bytes,
        "RAM": board.ram, "RAM_BYTES": board.ram_bytes,
    }  # fmt: skip
    defined = [f"-Wl,--defsym={key}={value}" for key, value in places.items()]
    sources = sorted(path.name for path in folder.glob("*.c") if path.name != _EXAMPLE)
    compiler = f"{model.compiler}gcc"
    flags = ["-std=gnu99", optimize, *model.flags, f"--specs={board.library}", f"-I{SOURCES}"]
    flags += ["-ffunction-sections", "-fdata-sections", "-fno-unwind-tables"]
    flags += include_flags(model.libraries)
    called = sources_of(model.libraries, ((folder / source).read_text() for source in sources))
    others = [str(SOURCES / "startup.c"), *map(str, called)]
    run_command([compiler, *flags, "-c", *sources, *others], folder)
    objects = [f"{Path(source).stem}.o" for source in (*sources, "startup.c")]
    libraries = [f"{file.stem}.o" for file in called]
    linking = ["-nostartfiles", "-Wl,--gc-sections", *defined, "-T", str(SOURCES / "link.ld")]
    linked = folder / f"{name}.elf"
    run_command(
        [compiler, *flags, *linking, *objects, *libraries, "-lm", "-o", linked.name], folder
    )
    return BoardProgram(linked, model, tuple(objects))


def write_files(files: Sequence[File], folder: Path) -> None:
    """Write all ``files`` into ``folder``."""
    for file in files:
        (folder / file.name).write_bytes(file.contents)
