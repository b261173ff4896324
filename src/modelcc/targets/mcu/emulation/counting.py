"""Exact instruction counts: a plugin of QEMU, and its results."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from modelcc.targets.c.toolchain import ToolchainError
from modelcc.targets.mcu.emulation.boards import SOURCES
from modelcc.targets.mcu.emulation.build import BoardProgram
from modelcc.targets.mcu.emulation.command import run_command
from modelcc.targets.mcu.kinds import kind_of
from modelcc.targets.mcu.timing import Kind

_OLD_INTERFACE = 9
"""The version of QEMU from which on version 2 of its plugin interface is used."""

_COMPILERS = "cc", "gcc", "clang"


@dataclass(frozen=True)
class Counts:
    """Instructions of one run by function, and by kind for each step (-1: before the first one)."""

    functions: Mapping[str, int]
    steps: Mapping[int, Mapping[Kind, int]]

    @property
    def kinds(self) -> Mapping[Kind, int]:
        """Counts of the whole run."""
        total = Counter[Kind]()
        for kinds in self.steps.values():
            total.update(kinds)
        return total


def build_plugin(emulator: str, folder: Path) -> Path | None:
    """The plugin, built by the system's compiler; None if there is none, or no C headers."""
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        return None
    version = re.search(r"version (\d+)", run_command([emulator, "--version"], folder))
    interface = 1 if version is None or int(version[1]) < _OLD_INTERFACE else 2
    made = folder / "counting.so"
    options = ["-O2", "-shared", "-fPIC", f"-DPLUGIN_VERSION={interface}"]
    try:
        source = str(SOURCES / "counting.c")
        run_command([compiler, *options, source, "-o", made.name], folder)
    except ToolchainError:
        return None
    return made


def plugin_arguments(plugin: Path, program: BoardProgram, counts: Path) -> Sequence[str]:
    """QEMU's arguments to count what ``program`` executes between its marks."""
    steps = program.folder / "steps.txt"
    steps.write_text("".join(f"{address} {number}\n" for address, number in program.steps))
    begin, end = (program.address(name) for name in ("measured_begin", "measured_end"))
    return "-plugin", f"{plugin},out={counts},begin={begin},end={end},steps={steps}"


def read_counts(path: Path, program: BoardProgram) -> Counts:
    """The results written by the plugin."""
    code, steps = program.disassembled(), dict[int, Counter[Kind]]()
    functions = Counter[str]()
    own = {program.function_at(program.address(n)) for n in ("measured_begin", "measured_end")}
    for line in path.read_text().splitlines():
        step, address, _, count, taken = map(int, line.split())
        name = program.function_at(address)
        if name in own:
            continue
        functions[name] += count
        kinds = steps.setdefault(step, Counter())
        for kind, each in kind_of(*code.get(address, ("", "")), program.model.architecture):
            kinds[kind] += each * count
        kinds["taken"] += taken
    return Counts(dict(functions.most_common()), steps)
