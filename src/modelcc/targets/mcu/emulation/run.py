"""One run of a program in QEMU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from modelcc.targets.mcu.emulation.boards import BOARDS
from modelcc.targets.mcu.emulation.build import BoardProgram
from modelcc.targets.mcu.emulation.command import run_command
from modelcc.targets.mcu.emulation.counting import (
    Counts,
    build_plugin,
    plugin_arguments,
    read_counts,
)


@dataclass(frozen=True)
class BoardRun:
    """Outputs as bytes, by field; bytes of flash, of variables and of stack, including the board's
    start-up code; instructions, None without a compiler for the counting plugin."""

    outputs: Mapping[str, bytes]
    flash: int
    variables: int
    stack: int
    counts: Counts | None

    @property
    def ram(self) -> int:
        """All memory that the program takes."""
        return self.variables + self.stack

    @property
    def instructions(self) -> Mapping[str, int]:
        """By function; empty if not counted."""
        return self.counts.functions if self.counts else {}

    @property
    def total(self) -> int:
        """All instructions."""
        return sum(self.instructions.values())


def run(
    program: BoardProgram, inputs: Mapping[str, bytes], plugin: Path | bool = False
) -> BoardRun:
    """Runs a program on ``inputs``, by field; ``plugin`` (True: one built for this run) counts.

    :class:`~modelcc.targets.c.toolchain.ToolchainError` if it does not end regularly.
    """
    folder, board = program.folder, BOARDS[program.model.name]
    for field, data in inputs.items():
        (folder / f"{field}.in").write_bytes(data)
    counting = build_plugin(board.emulator, folder) if plugin is True else plugin or None
    command = [board.emulator, "-M", board.machine, *board.options, "-display", "none"]
    command += ["-serial", "none", "-monitor", "none"]
    command += ["-semihosting-config", "enable=on,target=native"]
    counts = folder / "counts.txt"
    if counting:
        command += plugin_arguments(counting, program, counts)
    run_command([*command, "-kernel", program.path.name], folder)
    flash, variables = program.sizes
    stack = int(np.fromfile(folder / "stack.bin", np.uint32)[0])
    found = {path.stem: path.read_bytes() for path in sorted(folder.glob("*.out"))}
    counted = read_counts(counts, program) if counting else None
    return BoardRun(found, flash, variables, stack, counted)
