"""QEMU machines with the processors of targets, and the required tools."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from modelcc.targets.mcu.machine import McuModel

SOURCES = Path(__file__).parent / "board"
"""Start-up code, the linker's script, and the counting plugin."""


@dataclass(frozen=True)
class Board:
    """A QEMU machine, and the addresses of its memories: larger than those of a chip, for
    comparisons.

    ``library`` is GCC's name of the C library for it.
    """

    machine: str
    flash: int = 0
    flash_bytes: int = 4 << 20
    ram: int = 0x20000000
    ram_bytes: int = 4 << 20
    emulator: str = "qemu-system-arm"
    options: tuple[str, ...] = ()
    library: str = "nano.specs"


BOARDS: Mapping[str, Board] = MappingProxyType(
    {
        "cortex-m0plus": Board("mps2-an385"),  # a Cortex-M3, which runs all that Armv6-M has
        "cortex-m3": Board("mps2-an385"),
        "cortex-m4": Board("mps2-an386"),
        "cortex-m7": Board("mps2-an500"),
        "cortex-m33": Board("mps2-an505", flash=0x10000000, ram=0x38000000),
        "cortex-m55": Board("mps3-an547", flash_bytes=512 << 10, ram=0x01000000, ram_bytes=2 << 20),
        "riscv32imc": Board(
            "virt", flash=0x80000000, ram=0x80400000, emulator="qemu-system-riscv32",
            options=("-bios", "none"), library="picolibc.specs",
        ),
    }
)  # fmt: skip
"""By the names of targets."""

_PACKAGES: Mapping[str, str] = MappingProxyType(
    {
        "arm-none-eabi-gcc": "gcc-arm-none-eabi",
        "nano.specs": "libnewlib-arm-none-eabi",
        "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf",
        "picolibc.specs": "picolibc-riscv64-unknown-elf",
        "qemu-system-arm": "qemu-system-arm",
        "qemu-system-riscv32": "qemu-system-misc",
    }
)
"""Debian's and Ubuntu's names of the packages that have a command, or a library's specs for GCC."""


def missing_tools(model: McuModel) -> str:
    """The missing tools for a processor's programs, as a sentence; else empty."""
    if model.name not in BOARDS:
        return f"QEMU has no board with a {model.name}"
    board, compiler = BOARDS[model.name], f"{model.compiler}gcc"
    missing = [tool for tool in (compiler, board.emulator) if shutil.which(tool) is None]
    if shutil.which(compiler) is None or not _has_library(compiler, board.library):
        missing.append(board.library)
    if not missing:
        return ""
    packages = " ".join(_PACKAGES[tool] for tool in missing)
    return f"there is no {' and no '.join(missing)} (Debian: apt install {packages})"


def _has_library(compiler: str, specs: str) -> bool:
    command = [compiler, f"-print-file-name={specs}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() != specs
