"""Runs single instructions: by what they mean, natively, as C, and as 64-bit Arm code emulated."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from modelcc.ir.index import Sym
from modelcc.ir.instructions import RESULT
from modelcc.ir.loop import Buffer, For, Function, Instruction, Intrinsic, Load, Parameter, Store
from modelcc.ir.loop_interpreter import interpret_loops
from modelcc.ir.types import Array
from modelcc.targets.c.emitter import emit_c
from modelcc.targets.isa.templates import Encoding
from modelcc.targets.llvm.emitter import EmitOptions, emit_llvm
from modelcc.targets.llvm.instructions import Instructions
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import assembly, compile_llvm, host_machine

TRIALS = 64
EMULATOR, CROSS = "qemu-aarch64", "aarch64-linux-gnu-gcc"
ARM = Machine("aarch64-unknown-linux-gnu", "generic", ("+neon",), 128)
HOST = host_machine().architecture
X86 = Machine("x86_64-unknown-linux-gnu", "x86-64", (), 512)


def each_trial(instruction: Instruction, lanes: int, repeated: bool = False) -> Function:
    """The instruction on ``TRIALS`` rows of operands; the first operand of a row is that of a
    single lane if ``repeated``."""
    at = Sym("t")
    counts = [o.each * lanes for o in instruction.operands]
    counts[0] = instruction.operands[0].each if repeated else counts[0]
    named = list(zip(instruction.operands, counts, strict=True))
    args = tuple(Load(o.name, at * n, o.dtype, n) for o, n in named)
    store = Store(RESULT, at * lanes, Intrinsic(instruction, args))
    parameters = [Parameter(Buffer(o.name, o.dtype, TRIALS * n)) for o, n in named]
    result = Parameter(Buffer(RESULT, instruction.dtype, TRIALS * lanes), mutable=True)
    return Function("trials", (*parameters, result), (), (For("t", 0, TRIALS, (store,)),))


def operands_of(function: Function) -> list[Array]:
    """Random and extreme elements for all its buffers but the last, and room for the result."""
    rng = np.random.default_rng(0)
    buffers = [p.buffer for p in function.parameters]
    return [_elements(rng, b.dtype.numpy, int(str(b.size))) for b in buffers[:-1]] + [
        np.zeros(int(str(buffers[-1].size)), buffers[-1].dtype.numpy)
    ]


def _elements(rng: np.random.Generator, dtype: np.dtype, count: int) -> Array:
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        ends = rng.choice(np.array([info.min, info.max, 0, 1], dtype), count)
        values = rng.integers(info.min, info.max, count, dtype, endpoint=True)
        return np.where(rng.random(count) < 0.4, ends, values)
    scales = np.exp2(rng.integers(-20, 20, count))
    values = rng.standard_normal(count) * np.where(rng.random(count) < 0.5, scales, 1)
    whole = rng.choice(np.array([0.0, -0.0, 1, -1, 255]), count)
    return np.where(rng.random(count) < 0.3, whole, values).astype(dtype)


def interpreted(function: Function, arrays: Sequence[Array]) -> Array:
    """The result by the loop level's meaning."""
    copied = [a.copy() for a in arrays]
    interpret_loops(function, copied, ())
    return copied[-1]


def machine_with(encoding: Encoding) -> Machine:
    """One that has the instruction, and nothing else that its architecture need not have."""
    base = ARM if encoding.architecture == "aarch64" else X86
    return replace(base, features=(*base.features, *encoding.features))


def llvm_text(function: Function, encoding: Encoding | None) -> str:
    """LLVM text that uses no other encoding."""
    known = (encoding,) if encoding else ()
    return emit_llvm([function], EmitOptions(instructions=Instructions(known)))


def assembly_of(function: Function, encoding: Encoding) -> str:
    """What LLVM makes of that, with single spaces."""
    text = assembly(llvm_text(function, encoding), machine_with(encoding))
    return " ".join(text.split())


def lacking(encoding: Encoding) -> str:
    """Why the instruction cannot run here; empty if it can."""
    if encoding.architecture == HOST:
        missing = {*encoding.features} - {*host_machine().features}
        return f"this processor lacks {', '.join(sorted(missing))}" if missing else ""
    tools = [tool for tool in (EMULATOR, CROSS) if shutil.which(tool) is None]
    emulated = encoding.architecture == "aarch64"
    return f"{' and '.join(tools)} not installed" if tools or not emulated else ""


def compiled_c(
    function: Function, arrays: Sequence[Array], folder: Path, encoding: Encoding
) -> Array:
    """The result of C for a processor with the instruction; emulated where this is none."""
    source = folder / "trials.c"
    source.write_text(emit_c([function]))
    return run_files(function, arrays, source, encoding)


def compiled_llvm(
    function: Function, arrays: Sequence[Array], folder: Path, encoding: Encoding
) -> Array:
    """The result of LLVM's code, likewise."""
    source = folder / "trials.o"
    source.write_bytes(compile_llvm(llvm_text(function, encoding), machine_with(encoding)))
    return run_files(function, arrays, source, encoding)


def run_files(
    function: Function, arrays: Sequence[Array], source: Path, encoding: Encoding
) -> Array:
    """The result of a program that has the function from ``source``."""
    main, program = source.with_name("main.c"), source.with_name("program")
    main.write_text(program_text(function, arrays))
    compiler, emulator = ("cc", []) if encoding.architecture == HOST else (CROSS, [EMULATOR])
    command = [compiler, "-O2", *flags(encoding), "-static", str(main), str(source)]
    subprocess.run([*command, "-o", str(program)], check=True)
    files = [source.with_name(name) for name in ("in", "out")]
    files[0].write_bytes(b"".join(a.tobytes() for a in arrays))
    subprocess.run([*emulator, str(program), *map(str, files)], check=True)
    return np.fromfile(files[1], arrays[-1].dtype)


def flags(encoding: Encoding) -> list[str]:
    """What tells a C compiler that a processor has the instruction and next to nothing else."""
    if encoding.architecture == "aarch64":
        return ["-march=armv8.2-a" + "".join(encoding.features)]
    return [f"-m{feature.removeprefix('+')}" for feature in encoding.features]


def program_text(function: Function, arrays: Sequence[Array]) -> str:
    """A program that reads all operands from a file and writes the result to another one."""
    names = [f"b{n}" for n in range(len(arrays))]
    blocks = [
        f"static _Alignas(64) unsigned char {name}[{a.nbytes}];"
        for name, a in zip(names, arrays, strict=True)
    ]
    pointers = ", ".join("void *" for _ in names)
    return "\n".join([
        "#include <stdio.h>", f"void {function.name}({pointers});", *blocks,
        "int main(int n, char **path) {", '  FILE *in = fopen(path[1], "rb");',
        *(f"  n += fread({name}, 1, sizeof {name}, in);" for name in names),
        f"  {function.name}({', '.join(names)});", '  FILE *out = fopen(path[2], "wb");',
        f"  n += fwrite({names[-1]}, 1, sizeof {names[-1]}, out);", "  return fclose(out);", "}",
    ])  # fmt: skip
