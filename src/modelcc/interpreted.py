"""Bytecode for microcontrollers, run in this process by the interpreter's own C."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from modelcc.artifact.manifest import TensorSpec
from modelcc.feeds.random import random_feeds
from modelcc.ir.errors import ModelError, RunError
from modelcc.ir.types import DTYPES, Array, DType, TensorType
from modelcc.runtime.errors import InputError, LoadError
from modelcc.targets.c.dialect import EMBEDDED
from modelcc.targets.c.toolchain import ToolchainError, find_compiler

SOURCES = ("mcc.c", "mcc_kernels.c")
_WRONG = {
    -1: "it is no bytecode of this version",
    -2: "it is cut off",
    -3: "it is damaged: its checksum differs",
    -5: "it would leave its memory",
    -6: "it has too many tensors, or branches and loops in each other",
}
_NO_KERNEL = -4
_MODEL_BYTES = 16 + 2 * (1 << 16)
"""A ``mcc_model`` at most: its kernels are numbered by 16 bits."""


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("shape", ctypes.POINTER(ctypes.c_uint32)),
        ("first", ctypes.c_void_p),
        ("type", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("bytes", ctypes.c_uint32),
        ("room", ctypes.c_uint32),
        ("state", ctypes.c_int32),
    )


class BytecodeModel:
    """A model as bytecode: call it as any other; one call at a time."""

    def __init__(self, data: bytes, library: Any, path: str) -> None:
        """Made by :func:`load_bytecode`."""
        self._library = library
        self._path = path
        self._file = aligned(np.frombuffer(data, np.uint8))
        self._model = ctypes.create_string_buffer(_MODEL_BYTES)
        size = ctypes.c_uint32(len(data))
        self._accept(library.mcc_verify(_address(self._file), size))
        self._accept(library.mcc_open(self._model, _address(self._file), size))
        inputs, outputs = library.mcc_inputs(self._model), library.mcc_outputs(self._model)
        found = [library.mcc_tensor_of(self._model, n) for n in range(inputs + outputs)]
        self._tensors = [_spec(one) for one in found]
        self._kept = [bool(one.state) for one in found]
        self._inputs = inputs
        arena = library.mcc_arena_bytes(self._model)
        self.arena = aligned(np.zeros(int(arena), np.uint8))
        self._memory = [_zeros(spec) for spec in self._tensors]
        self._pointers = (ctypes.c_void_p * len(found))(*map(_address, self._memory))
        self.reset()

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, element type and shape of each input."""
        pairs = zip(self._tensors[: self._inputs], self._kept, strict=False)
        return tuple(spec for spec, kept in pairs if not kept)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, element type and shape of each output."""
        return tuple(self._tensors[self._inputs :])

    @property
    def states(self) -> dict[str, Array]:
        """What the model keeps from call to call, by name."""
        named = zip(self._tensors, self._kept, self._memory, strict=True)
        return {spec.name: memory.copy() for spec, kept, memory in named if kept}

    def reset(self) -> None:
        """Set the states to what they were at first."""
        self._library.mcc_reset(self._model, self._pointers)

    def __call__(self, *arguments: object) -> Array | tuple[Array, ...]:
        """The output, or a tuple of the outputs, for inputs in order."""
        names = [spec.name for spec in self.inputs]
        if len(arguments) != len(names):
            raise InputError(self._path, f"{len(names)} inputs", str(len(arguments)), "")
        found = tuple(self.run(dict(zip(names, arguments, strict=True))).values())
        return found[0] if len(found) == 1 else found

    def run(self, feeds: Mapping[str, object]) -> dict[str, Array]:
        """Outputs by name for inputs by name.

        :class:`InputError` for what does not fit, :class:`RunError` for an index in the inputs that
        is out of range.
        """
        for spec in self.inputs:
            given = np.asarray(feeds.get(spec.name))
            if given.dtype != spec.dtype.numpy or given.shape != spec.shape:
                found = f"{given.dtype}{list(given.shape)}"
                raise InputError(f"{self._path}: input '{spec.name}'", str(spec), found, "")
            self._memory[[s.name for s in self._tensors].index(spec.name)][...] = given
        status = self._library.mcc_run(self._model, _address(self.arena), self._pointers)
        if status:
            node = self._library.mcc_step_name(self._model, status).decode()
            raise RunError(f"{self._path}: an index is out of range in {node}")
        outputs = zip(self.outputs, self._memory[self._inputs :], strict=True)
        return {spec.name: memory.copy() for spec, memory in outputs}

    def random_inputs(
        self, sizes: Mapping[str, int] | None = None, seed: int = 0
    ) -> dict[str, Array]:
        """Random arrays for all inputs; there are no named ``sizes``."""
        types = {spec.name: TensorType(spec.shape, spec.dtype) for spec in self.inputs}
        return random_feeds(types, {}, seed)

    def _accept(self, status: int) -> None:
        if status == _NO_KERNEL:
            low, high = np.frombuffer(self._model.raw, np.uint32, 2, ctypes.sizeof(ctypes.c_void_p))
            hint = "make the interpreter for this model, too: --emit interpreter --firmware"
            message = f"{self._path}: the interpreter has no kernel {high:08x}{low:08x}; {hint}"
            raise LoadError(message)
        if status:
            raise LoadError(f"{self._path}: {_WRONG.get(status, status)}")


def load_bytecode(path: Path, interpreter: Path | None) -> BytecodeModel:
    """The model in the file ``path``, run by the C that ``--emit interpreter`` wrote to a folder.

    :class:`ModelError` if there is no such folder or no C compiler.
    """
    if interpreter is None:
        hint = "name the folder that `modelcc compile --emit interpreter` wrote"
        raise ModelError("bytecode is run by an interpreter with its kernels", (str(path),), hint)
    if not path.is_file():
        raise ModelError("there is no such file", (str(path),))
    return BytecodeModel(path.read_bytes(), built(interpreter), str(path))


def built(folder: Path, options: Sequence[str] = ()) -> Any:
    """The interpreter in ``folder`` as a library; :class:`ModelError` if it cannot be built."""
    sources = [folder / name for name in SOURCES]
    missing = [str(source) for source in sources if not source.is_file()]
    if missing:
        raise ModelError("it is no interpreter", (missing[0],), "--emit interpreter writes one")
    try:
        command = find_compiler(dialect=EMBEDDED).command
    except ToolchainError as error:
        raise ModelError(str(error)) from error
    with tempfile.TemporaryDirectory() as made:
        target = Path(made, "interpreter.so")
        words = [*command, "-std=c99", "-O2", "-shared", "-fPIC", *options]
        words += [*map(str, sources), "-lm", "-o", str(target)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ModelError("its C does not compile", (str(folder),), done.stderr[:500])
        library: Any = ctypes.CDLL(str(target))
    library.mcc_tensor_of.restype = _Tensor
    library.mcc_step_name.restype = ctypes.c_char_p
    for name in ("mcc_arena_bytes", "mcc_inputs", "mcc_outputs"):
        getattr(library, name).restype = ctypes.c_uint32
    return library


def aligned(array: Array) -> Array:
    """A copy that begins at a multiple of 8 bytes."""
    room = np.zeros(array.nbytes + 8, np.uint8)
    start = -room.ctypes.data % 8
    found = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def _address(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _spec(tensor: Any) -> TensorSpec:
    shape = tuple(tensor.shape[n] for n in range(tensor.rank))
    types: list[DType] = [*DTYPES.values()]
    return TensorSpec(str(tensor.name, "utf-8"), types[int(tensor.type)], shape)


def _zeros(spec: TensorSpec) -> Array:
    zeros: Array = np.zeros([int(str(extent)) for extent in spec.shape], spec.dtype.numpy)
    return aligned(zeros)
