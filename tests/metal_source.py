"""Kernels in Metal's shading language, compiled by g++ with a header in its library's place."""

from __future__ import annotations

import ctypes
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

SHIM = Path(__file__).parent / "metal_shim.h"
FLAGS = (
    "-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-fwrapv", "-Werror",
    "-Wno-attributes", "-Wno-unknown-pragmas", "-U_FORTIFY_SOURCE",
)  # fmt: skip
KERNEL = re.compile(
    r"^\[\[kernel, max_total_threads_per_threadgroup\((\d+) \* (\d+) \* (\d+)\)\]\] "
    r"void\s+(\w+)\(\s*([^{]*)\)\n\{$(.*?)^\}$",
    re.MULTILINE | re.DOTALL,
)
BUFFER = re.compile(r"device (const )?(\w+) \*(?:restrict )?\w+ \[\[buffer\((\d+)\)\]\]")
NUMBER = re.compile(r"constant int64_t &\w+ \[\[buffer\((\d+)\)\]\]")
INDICES = (
    "uint3 mcc_group [[threadgroup_position_in_grid]]",
    "uint3 mcc_thread [[thread_position_in_threadgroup]]",
)
BYTES = {"float": 4, "int64_t": 8, "uint64_t": 8, "int32_t": 4, "uint32_t": 4, "int16_t": 2,
         "uint16_t": 2, "int8_t": 1, "uint8_t": 1}  # fmt: skip
MOST_ARGUMENTS = 31


@dataclass(frozen=True)
class Kernel:
    """One of a text: the types of what it is given by number (empty: a size), and its threads."""

    name: str
    arguments: tuple[str, ...]
    threads: int
    waits: bool


def kernels_of(text: str) -> dict[str, Kernel]:
    """All of a text of MSL, whose signatures are as ours are."""
    found: dict[str, Kernel] = {}
    for x, y, z, name, given, body in KERNEL.findall(text):
        parameters = " ".join(given.split()).split(", ")
        assert tuple(parameters[-2:]) == INDICES, parameters
        types: list[str] = []
        for number, parameter in enumerate(parameters[:-2]):
            buffer, size = BUFFER.fullmatch(parameter), NUMBER.fullmatch(parameter)
            assert buffer or size, parameter
            types.append(buffer[2] if buffer else "")
            assert int(buffer[3] if buffer else size[1] if size else -1) == number
        assert len(types) <= MOST_ARGUMENTS
        threads = int(x) * int(y) * int(z)
        found[name] = Kernel(name, tuple(types), threads, "threadgroup_barrier" in body)
    assert len(found) == text.count("[[kernel")
    return found


def check_memories(text: str) -> None:
    """Pointers say what memory they are into, and memory of groups belongs to whole kernels."""
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    types = "|".join((*BYTES, "bool", "char", "void", "half", "To", "From"))
    for line in code.splitlines():
        for found in re.finditer(rf"(\w+) (?:const )?(?:{types}) \*", line):
            assert found[1] in ("device", "thread", "threadgroup", "constant", "const"), line
        assert not re.match(r"\s{5,}threadgroup ", line), line


@cache
def compiled(text: str) -> ctypes.CDLL | str:
    """A library of the kernels of a text, or what g++ says."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "metal_stdlib").write_text(SHIM.read_text())
        source, library = Path(folder) / "kernels.cpp", Path(folder) / "kernels.so"
        source.write_text(
            "\n".join([for_processors(text), *map(_launcher, kernels_of(text).values())])
        )
        command = ["g++", *FLAGS, f"-I{folder}", str(source), "-o", str(library)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return ctypes.CDLL(str(library)) if done.returncode == 0 else done.stderr


def for_processors(text: str) -> str:
    """Memory of a group is static where one group runs at a time."""
    return re.sub(r"^    threadgroup ", "    static threadgroup ", text, flags=re.MULTILINE)


def _launcher(kernel: Kernel) -> str:
    """A function for C that runs the kernel on pointers."""
    given = [
        f"({kind} *)buffers[{n}]" if kind else f"*(const int64_t *)buffers[{n}]"
        for n, kind in enumerate(kernel.arguments)
    ]
    return f"""
static void body_{kernel.name}(uint3 group, uint3 thread_, void **buffers)
{{
    (void)buffers;
    {kernel.name}({", ".join([*given, "group", "thread_"])});
}}
extern "C" int run_{kernel.name}(void **buffers, const uint *grid, const uint *threads)
{{
    return shim::launch(body_{kernel.name}, {int(kernel.waits)}, buffers, grid, threads);
}}"""
