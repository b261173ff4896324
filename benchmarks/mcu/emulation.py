"""Builds a delivered model with a board's start-up code, and runs it once in QEMU."""

from __future__ import annotations

import bisect
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

from modelcc.targets.mcu.machine import McuModel

BOARD = Path(__file__).parent / "board"
SECONDS = 600


@dataclass(frozen=True)
class Board:
    """A machine of QEMU's, and where its memories are: more than a chip has, for comparisons."""

    machine: str
    flash: int = 0
    flash_bytes: int = 4 << 20
    ram: int = 0x20000000
    ram_bytes: int = 4 << 20


BOARDS: Mapping[str, Board] = MappingProxyType(
    {
        "cortex-m3": Board("mps2-an385"),
        "cortex-m4": Board("mps2-an386"),
        "cortex-m7": Board("mps2-an500"),
        "cortex-m33": Board("mps2-an505", flash=0x10000000, ram=0x38000000),
        "cortex-m55": Board("mps3-an547", flash_bytes=512 << 10, ram=0x01000000, ram_bytes=2 << 20),
    }
)
"""By the names of targets."""


class EmulationError(Exception):
    """A tool refuses, or the program ends otherwise than it should."""


@dataclass(frozen=True)
class Slot:
    """An input or output of a model in C: the macro's stem (``KWS_INPUT_x``), and its field."""

    side: str
    macro: str
    field: str
    element: str


@dataclass(frozen=True)
class Measurement:
    """One run: outputs as bytes, by field; bytes of flash, of variables and of stack; and, with the
    plugin, instructions between the marks, by function."""

    outputs: Mapping[str, bytes]
    flash: int
    variables: int
    stack: int
    instructions: Mapping[str, int]

    @property
    def ram(self) -> int:
        """All memory that the program takes."""
        return self.variables + self.stack

    @property
    def total(self) -> int:
        """All instructions."""
        return sum(self.instructions.values())


def missing_tools(model: McuModel) -> str:
    """What is not installed, as a sentence; empty if nothing is missing."""
    wanted = (f"{model.compiler}gcc", "qemu-system-arm")
    missing = [tool for tool in wanted if shutil.which(tool) is None]
    if model.name not in BOARDS:
        return f"QEMU has no board with a {model.name}"
    return f"there is no {' and no '.join(missing)}" if missing else ""


def build(folder: Path, name: str, model: McuModel, optimize: str = "-O2") -> Path:
    """The program of the delivered model ``name`` in ``folder``; its file."""
    board, program = BOARDS[model.name], folder / "program.elf"
    (folder / "board_main.c").write_text(board_main(folder, name))
    places = {
        "FLASH": board.flash, "FLASH_BYTES": board.flash_bytes,
        "RAM": board.ram, "RAM_BYTES": board.ram_bytes,
    }  # fmt: skip
    defined = [f"-Wl,--defsym={key}={value}" for key, value in places.items()]
    sources = [f"{name}.c", "board_main.c", str(BOARD / "startup.c")]
    _run(
        [
            f"{model.compiler}gcc", "-std=c99", optimize, *model.flags, "-ffunction-sections",
            "-fdata-sections", "-fno-unwind-tables", "-nostartfiles", "--specs=nano.specs",
            "-Wl,--gc-sections", *defined, "-T", str(BOARD / "link.ld"), f"-I{BOARD}",
            *sources, "-lm", "-o", str(program),
        ],
        folder,
    )  # fmt: skip
    return program


def run(
    program: Path, model: McuModel, inputs: Mapping[str, bytes], plugin: Path | None = None
) -> Measurement:
    """Run a built program on ``inputs``, by field."""
    folder, symbols = program.parent, _symbols(program, model)
    for field, data in inputs.items():
        (folder / f"{field}.in").write_bytes(data)
    counts, counting = folder / "counts.txt", []
    if plugin is not None:
        counts.unlink(missing_ok=True)
        marks = {name: at for at, name in symbols}
        given = f"out={counts},begin={marks['measured_begin']},end={marks['measured_end']}"
        counting = ["-plugin", f"{plugin},{given}"]
    emulator = ["qemu-system-arm", "-M", BOARDS[model.name].machine, "-display", "none"]
    emulator += ["-serial", "none", "-monitor", "none"]
    emulator += ["-semihosting-config", "enable=on,target=native", *counting]
    _run([*emulator, "-kernel", str(program)], folder)
    flash, variables = _sizes(program, model)
    stack = int(np.fromfile(folder / "stack.bin", np.uint32)[0])
    found = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.out"))}
    return Measurement(found, flash, variables, stack, _counted(counts, symbols) if plugin else {})


def slots(header: str, name: str) -> tuple[Slot, ...]:
    """The inputs and outputs that a header declares, in the order of the parameters."""
    signature = re.search(rf"{name}_run\(void \*arena,?([^)]*)\)", header)
    typed = {} if signature is None else dict(_parameter(p) for p in signature[1].split(",") if p)
    found = re.findall(rf"#define ({name.upper()}_(INPUT|OUTPUT|STATE)_(\w+))_ELEMENTS", header)
    sides = {field: (macro, side) for macro, side, field in found}
    return tuple(Slot(sides[f][1], sides[f][0], f, element) for f, element in typed.items())


def _parameter(text: str) -> tuple[str, str]:
    words = text.replace("*", " ").removeprefix(" const").split()
    return words[-1], words[-2]


def board_main(folder: Path, name: str) -> str:
    """A program that runs the delivered model ``name`` once: inputs and outputs are files."""
    header = (folder / f"{name}.h").read_text()
    macro, found = name.upper(), slots(header, name)
    words = f"({macro}_ARENA_BYTES + 7) / 8 + !{macro}_ARENA_BYTES"
    head = [f'#include "{name}.h"', '#include "board.h"', ""]
    lines = [*head, f"static uint64_t arena[{words}];"]
    body: list[str] = []
    for slot in found:
        if f"{slot.macro}_ARENA_OFFSET" in header:
            place = f"(uint8_t *)arena + {slot.macro}_ARENA_OFFSET"
            body.append(f"{slot.element} *{slot.field} = (void *)({place});")
        else:
            lines.append(f"static {slot.element} {slot.field}[{slot.macro}_ELEMENTS];")
    kept = ", ".join(slot.field for slot in found if slot.side == "STATE")
    body += [f"{name}_reset({kept});"] if kept else []
    body += [_moved("read", slot, "in") for slot in found if slot.side == "INPUT"]
    given = ", ".join(["arena", *(slot.field for slot in found)])
    body += ["measured_begin();", f"const int32_t status = {name}_run({given});", "measured_end();"]
    body += [_moved("write", slot, "out") for slot in found if slot.side == "OUTPUT"]
    body += ["return (int)status;"]
    return "\n".join([*lines, "", "int main(void)", "{", *(f"    {b}" for b in body), "}", ""])


def _moved(verb: str, slot: Slot, suffix: str) -> str:
    return f'board_{verb}("{slot.field}.{suffix}", {slot.field}, {slot.macro}_BYTES);'


def _symbols(program: Path, model: McuModel) -> list[tuple[int, str]]:
    """Addresses of functions, ascending."""
    lines = _run([f"{model.compiler}nm", str(program)], program.parent).splitlines()
    words = [line.split() for line in lines]
    return sorted((int(w[0], 16) & ~1, w[2]) for w in words if len(w) == 3 and w[1] in "tTwW")


def _sizes(program: Path, model: McuModel) -> tuple[int, int]:
    """Bytes of flash, and of variables."""
    lines = _run([f"{model.compiler}size", "-A", str(program)], program.parent).splitlines()
    sections = {w[0]: int(w[1]) for w in map(str.split, lines) if len(w) == 3 and w[1].isdigit()}
    data = sections.get(".data", 0)
    flash = sections.get(".text", 0) + sections.get(".ARM.exidx", 0) + data
    return flash, data + sections.get(".bss", 0)


def _counted(path: Path, symbols: Sequence[tuple[int, str]]) -> dict[str, int]:
    """Instructions by function, from lines of an address, a size and a count."""
    starts = [at for at, _ in symbols]
    found: dict[str, int] = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            at, _, count, *_ = map(int, line.split())
            name = symbols[max(0, bisect.bisect_right(starts, at) - 1)][1]
            found[name] = found.get(name, 0) + count
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode:
        raise EmulationError(f"{command[0]} ended with {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout
