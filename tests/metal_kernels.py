"""Kernels in Metal's shading language, run on a processor by g++ and a header in its library's
place."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from math import prod
from pathlib import Path

import pytest
from kernel_runs import Executor

from modelcc.ir.index import evaluate
from modelcc.ir.loop import Function
from modelcc.ir.loop_traversal import launch_extents
from modelcc.ir.types import Array
from modelcc.targets.c.names import symbol
from modelcc.targets.c.values import memory_type
from modelcc.targets.metal.target import metal_text

SHIM = Path(__file__).parent / "metal_shim.h"
FLAGS = (
    "-std=c++17", "-O0", "-shared", "-fPIC", "-ffp-contract=off", "-fwrapv", "-Werror",
    "-Wno-attributes", "-Wno-unknown-pragmas",
)  # fmt: skip


def build_metal(functions: Sequence[Function], folder: Path) -> Executor:
    """``functions`` of groups, ready to run."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    text = metal_text(functions)
    (folder / "metal_stdlib").write_text(SHIM.read_text())
    source, library = folder / "kernels.cpp", folder / "kernels.so"
    source.write_text("\n".join([text, *map(_launcher, functions)]))
    command = ["g++", *FLAGS, f"-I{folder}", str(source), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = ctypes.CDLL(str(library))
    by_name = {f.name: f for f in functions}

    def run(name: str, arrays: Sequence[Array], sizes: Sequence[int]) -> None:
        function = by_name[name]
        env = dict(zip(function.sizes, sizes, strict=True))
        grid, threads = ([evaluate(e, env) for e in ends] for ends in launch_extents(function))
        memory = (ctypes.c_void_p * (len(arrays) + 1))(*(a.ctypes.data for a in arrays))
        if prod(grid):
            getattr(loaded, f"run_{symbol(name)}")(memory, *map(_numbers, (sizes, grid, threads)))

    return run


def _numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * (len(values) + 3))(*values, 1, 1, 1)


def _launcher(function: Function) -> str:
    """A function for C that runs the kernel on pointers."""
    name, count = symbol(function.name), len(function.parameters)
    types = [memory_type(p.buffer.dtype) for p in function.parameters]
    arguments = [f"({t} *)buffers[{n}]" for n, t in enumerate(types)]
    arguments += [f"sizes[{n}]" for n in range(len(function.sizes))]
    given = ", ".join([*arguments, "group", "thread_"])
    assert len(arguments) >= count
    return f"""
static void body_{name}(uint3 group, uint3 thread_, void **buffers, const int64_t *sizes)
{{
    (void)sizes;
    {name}({given});
}}
extern "C" void run_{name}(void **buffers, const int64_t *sizes, const int64_t *grid,
                           const int64_t *threads)
{{
    shim::launch(body_{name}, buffers, sizes, grid, threads);
}}"""
