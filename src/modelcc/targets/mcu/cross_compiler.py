"""Measurements of a delivered model built by GCC for a microcontroller: bytes of code, and of
stack."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from modelcc.targets.c.delivery.folder import File
from modelcc.targets.c.toolchain import ToolchainError
from modelcc.targets.mcu.libraries.sources import include_flags, sources_of
from modelcc.targets.mcu.machine import McuModel

_NODE = re.compile(r'node: \{ title: "([^"]+)" label: "(?:[^"]*\\n(\d+) bytes \((\w+)[^"]*)?')
_EDGE = re.compile(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"')
_SYMBOL = re.compile(r"^[0-9a-f]+ ([0-9a-f]+) ([a-zA-Z]) (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Built:
    """Bytes of a model's ``functions`` and constant ``arrays``, by name, and of library code that
    it links, without unused parts; the maximum ``stack`` of its own functions.

    ``unknown`` are functions of libraries, whose stack is additional.
    """

    version: str
    functions: Mapping[str, int]
    arrays: Mapping[str, int]
    library: int
    stack: int
    unknown: tuple[str, ...]


@dataclass(frozen=True)
class CrossCompiler:
    """GCC's commands for a microcontroller begin with ``prefix``; ``version`` names it.

    Programs may call ``libraries``, built from their folders of sources.
    """

    prefix: str
    version: str
    flags: tuple[str, ...]
    libraries: tuple[tuple[str, str], ...] = ()

    def measure(self, files: Sequence[File], name: str) -> Built:
        """Builds the model ``name``; :class:`ToolchainError` if the compiler rejects it."""
        with tempfile.TemporaryDirectory() as folder:
            for file in files:
                Path(folder, file.name).write_bytes(file.contents)
            called = sources_of(self.libraries, [Path(folder, f"{name}.c").read_text()])
            sources = [f"{name}.c", *map(str, called)]
            flags = (*self.flags, *include_flags(self.libraries))
            self._run(folder, "gcc", *flags, "-fcallgraph-info=su", "-c", *sources)
            objects = [f"{Path(source).stem}.o" for source in sources]
            linked = ("-nostartfiles", "--specs=nano.specs", "-Wl,--gc-sections")
            entry = f"-Wl,-e,{name}_run"
            self._run(folder, "gcc", *self.flags, *linked, entry, *objects, "-lm", "-o", "all")
            own = {n for _, _, n in _SYMBOL.findall(self._run(folder, "nm", "-S", f"{name}.o"))}
            symbols = _SYMBOL.findall(self._run(folder, "nm", "-S", "all"))
            graphs = (Path(folder, one).with_suffix(".ci").read_text() for one in objects)
            stack, unknown = greatest_stack("\n".join(graphs), f"{name}_run")
        sizes = [(kind.lower(), n, int(size, 16)) for size, kind, n in symbols]
        return Built(
            self.version,
            {n: size for kind, n, size in sizes if kind == "t" and n in own},
            {n: size for kind, n, size in sizes if kind == "r" and n in own},
            sum(size for _, n, size in sizes if n not in own),
            stack,
            unknown,
        )

    def _run(self, folder: str, tool: str, *arguments: str) -> str:
        command = [f"{self.prefix}{tool}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode:
            first = "\n".join(done.stderr.strip().splitlines()[:8])
            raise ToolchainError(f"{command[0]} ({self.version}) fails:\n{first}")
        return done.stdout


def find_cross_compiler(model: McuModel, optimize: int) -> CrossCompiler | None:
    """The compiler for ``model``, if it is installed."""
    command = shutil.which(f"{model.compiler}gcc") if model.compiler else None
    if command is None:
        return None
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=False)
    level = (f"-O{optimize}", "-std=c99", "-ffunction-sections", "-fdata-sections")
    version = done.stdout.partition("\n")[0]
    return CrossCompiler(model.compiler, version, (*level, *model.flags), model.libraries)


def greatest_stack(graph: str, entry: str) -> tuple[int, tuple[str, ...]]:
    """The maximum bytes of stack of ``entry`` and its callees, by GCC's call graph, and the
    functions without data."""
    own: dict[str, int | None] = {}
    for title, size, kind in _NODE.findall(graph):
        bounded = size and kind != "dynamic"
        own[title] = int(size) if bounded else own.get(title)
    calls: dict[str, dict[str, None]] = {}
    for caller, callee in _EDGE.findall(graph):
        calls.setdefault(caller, {})[callee] = None
    known: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in known:
            known[name] = own.get(name) or 0  # generated code is not recursive
            known[name] += max(map(depth, calls.get(name, ())), default=0)
        return known[name]

    greatest = depth(entry)
    return greatest, tuple(sorted(name for name in known if own.get(name) is None))
