"""Functions of the host as a module of WebAssembly, by LLVM and its linker."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from modelcc.ir.errors import ModelError
from modelcc.ir.loop import Function
from modelcc.targets.llvm.emitter import emit_llvm
from modelcc.targets.native.emission import emission
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.toolchain import CodegenOptions, compile_llvm

WASM = Machine(
    "wasm32-unknown-unknown", "generic", ("+simd128", "+bulk-memory", "+nontrapping-fptoint"), 128
)
"""Features of browsers that have WebGPU."""

LINKERS = ("wasm-ld", *(f"wasm-ld-{version}" for version in range(22, 14, -1)))
"""Names of LLVM's linker, in order of preference."""

_STACK = 1 << 20


def wasm_module(functions: Sequence[Function]) -> bytes:
    """A module that exports ``functions``, its memory and ``__heap_base``, where that is free.

    :class:`ModelError` if there is no linker for it.
    """
    names = [function.name for function in functions]
    linker = next(filter(None, map(which, LINKERS)), None)
    if linker is None:
        raise ModelError(
            f"{len(names)} kernels of the model stay on the host, which is WebAssembly in a "
            f"browser, and wasm-ld is not there to link them: {', '.join(names)}",
            (),
            "install LLVM's linker (Debian: lld-22)",
        )
    text = emit_llvm(functions, emission(WASM))
    code = compile_llvm(text, WASM, CodegenOptions(relocation="static"))
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "host.o", Path(folder) / "host.wasm"
        source.write_bytes(code)
        exports = [f"--export={name}" for name in (*names, "__heap_base")]
        options = ["--no-entry", "--allow-undefined", "--strip-all", "--stack-first"]
        stack = ["-z", f"stack-size={_STACK}"]
        command = [linker, *options, *stack, *exports, str(source), "-o", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ModelError(f"{linker} does not link the host's kernels: {done.stderr.strip()}")
        return target.read_bytes()
