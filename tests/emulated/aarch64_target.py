"""The target ``aarch64``: 64-bit Arm code made here, and run by qemu's user-mode emulator.

It is for tests: each call starts a process, which gets the inputs in a file and leaves the results
in another one.
"""

from __future__ import annotations

import ctypes
import math
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import numpy as np

from modelcc.artifact.file import Artifact
from modelcc.artifact.manifest import Manifest
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, evaluate
from modelcc.runtime.loader import NativeCode
from modelcc.runtime.session import Session
from modelcc.runtime.signature import SignatureMaker
from modelcc.targets.base import TargetOptions
from modelcc.targets.native.host import cpu_model
from modelcc.targets.native.machine import Machine
from modelcc.targets.native.target import NativeTarget
from modelcc.targets.native.toolchain import CodegenOptions

EMULATOR, LINKER = "qemu-aarch64", "aarch64-linux-gnu-gcc"
RUNNER = Path(__file__).with_name("aarch64_runner.c")
MACHINE = Machine("aarch64-unknown-linux-gnu", "generic", ("+neon",), 128)
"""Armv8-A: what every 64-bit Arm processor has."""

_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, *(ctypes.c_void_p,) * 7)


def missing() -> str:
    """What is not installed that running needs; empty if all is."""
    lacking = [tool for tool in (EMULATOR, LINKER) if shutil.which(tool) is None]
    return f"{' and '.join(lacking)} not installed" if lacking else ""


@dataclass(frozen=True)
class Aarch64Target(NativeTarget):
    """The native target for 64-bit Arm, whose sessions are emulated."""

    @property
    def name(self) -> str:
        return "aarch64"

    def load(self, artifact: Artifact, threads: int) -> Session:
        """The artifact as a program of its own, each call of which is a process with one thread."""
        if missing():
            hint = "install the packages qemu-user and gcc-aarch64-linux-gnu"
            raise ModelError(f"aarch64 code cannot run here: {missing()}", (), hint)
        return Session(artifact, 1, Emulated(artifact).code())


def aarch64_target(options: TargetOptions) -> Aarch64Target:
    """The target for ``options``, whose ``cpu`` names what else the processor has: "dotprod"."""
    further = (f"+{options.cpu}",) if options.cpu else ()
    machine = replace(MACHINE, features=(*MACHINE.features, *further))
    return Aarch64Target(machine, cpu_model(machine, options.threads), options, CodegenOptions())


class Emulated:
    """An artifact linked to a program; what it takes and gives has host addresses here."""

    def __init__(self, artifact: Artifact) -> None:
        self.manifest = artifact.manifest
        self.signatures = SignatureMaker(self.manifest)
        self.folder = Path(tempfile.mkdtemp(prefix="modelcc-aarch64-"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        _link(self.manifest, artifact, self.folder)
        weights = [
            np.ascontiguousarray(artifact.constants[c.name]) for c in self.manifest.constants
        ]
        (self.folder / "constants").write_bytes(b"".join(array.tobytes() for array in weights))

    def code(self) -> NativeCode:
        """Its entry point in this process."""
        entry = _ENTRY(self.call)
        address = ctypes.cast(entry, ctypes.c_void_p).value or 0
        return NativeCode((self, entry), {self.manifest.entry: address})

    def call(
        self, inputs: int, outputs: int, _constants: int, arena: int, sizes: int,
        _pool: int, host: int,
    ) -> int:  # fmt: skip
        """What the entry point does; its arguments are as the manifest says."""
        manifest = self.manifest
        names = [*(dim.name for dim in manifest.dims), *manifest.sizes]
        numbers = (ctypes.c_int64 * max(1, len(names))).from_address(sizes)
        known = dict(zip(names, numbers, strict=False))
        shapes = [_shape(spec.shape, known) for spec in manifest.inputs]
        signature = self.signatures.signature(shapes)
        taken = [
            _bytes(s.dtype.numpy, shape) for s, shape in zip(manifest.inputs, shapes, strict=True)
        ]
        given = [
            0 if s.name in manifest.allocated else _bytes(s.dtype.numpy, shape)
            for s, shape in zip(manifest.outputs, signature.outputs, strict=True)
        ]
        fixed = [spec.size for spec in manifest.constants]
        counts = [*map(len, (taken, given, fixed, names, manifest.allocated)), signature.arena]
        words = [*counts, *taken, *given, *fixed, *numbers[: len(names)]]
        reply = self.run(np.array(words, np.int64).tobytes() + _gathered(inputs, taken))
        if isinstance(reply, int):
            return reply
        (status,) = np.frombuffer(reply.read(8), np.int64).tolist()
        head = reply.read(8)
        ctypes.memmove(arena, head, min(8, signature.arena))
        ctypes.memmove(sizes, reply.read(8 * len(names)), 8 * len(names))
        for place, size in zip(_addresses(outputs, len(given)), given, strict=True):
            ctypes.memmove(place, reply.read(size), size)
        if manifest.allocated:
            _allocate(host, reply, len(manifest.allocated))
        return status

    def run(self, request: bytes) -> BytesIO | int:
        """The reply to ``request``, or a status if the program has died."""
        (self.folder / "request").write_bytes(request)
        files = [self.folder / name for name in ("program", "request", "constants", "reply")]
        done = subprocess.run([EMULATOR, *files], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{EMULATOR} ended with {done.returncode}: {done.stderr}", file=sys.stderr)
            return -abs(done.returncode)
        return BytesIO(files[-1].read_bytes())


def _link(manifest: Manifest, artifact: Artifact, folder: Path) -> None:
    for name in manifest.objects:
        (folder / name).write_bytes(artifact.objects[name])
    objects = [folder / name for name in manifest.objects]
    command = [LINKER, "-static", "-O1", f"-DENTRY={manifest.entry}", str(RUNNER)]
    command += [*map(str, objects), "-lm", "-o", str(folder / "program")]
    subprocess.run(command, check=True)


def _shape(extents: Sequence[Index], known: dict[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(extent, known) for extent in extents)


def _bytes(dtype: np.dtype, shape: Sequence[int]) -> int:
    return math.prod(shape) * dtype.itemsize


def _addresses(table: int, count: int) -> list[int]:
    return (ctypes.c_int64 * count).from_address(table)[:]


def _gathered(table: int, sizes: Sequence[int]) -> bytes:
    places = zip(_addresses(table, len(sizes)), sizes, strict=True)
    return b"".join(ctypes.string_at(place, size) for place, size in places)


def _allocate(host: int, reply: BytesIO, count: int) -> None:
    """Ask the session for the memory that the program has asked for, and fill it."""
    function, context = _addresses(host, 2)
    ask = _ALLOCATE(function)
    for which in range(count):
        (size,) = np.frombuffer(reply.read(8), np.int64).tolist()
        if size >= 0:
            ctypes.memmove(ask(context, which, size), reply.read(size), size)
