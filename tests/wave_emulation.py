"""A wave of 64 threads of AMD's matrix cores, emulated: LLVM text without branches is run by all of
them in step, products by the register layouts that AMD publishes.

The layouts are those of AMD's calculator, github.com/ROCm/amd_matrix_instruction_calculator at
2ef91896, as it prints them (``--detail-instruction``, "Register to matrix element mapping with no
modifiers"); ``GPR`` and ``bits`` are where an element is in a thread's registers.  Those of
gfx950 with twice the terms, which it does not know, are from ROCm/composable_kernel
(``mfma_type`` in include/ck/tensor_operation/gpu/warp/xdlops_gemm.hpp: ``num_input_blks`` 4,
``num_threads_per_blk`` 16, ``k_per_blk`` 8, and 16 of bytes).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from modelcc.ir.types import Array

WAVE, PRIVATE = 64, 1 << 32
LANES = np.arange(WAVE)

_TYPES: Mapping[str, np.dtype] = {
    "i8": np.dtype(np.uint8),
    "i16": np.dtype(np.uint16),
    "i32": np.dtype(np.uint32),
    "i64": np.dtype(np.uint64),
    "half": np.dtype(np.float16),
    "bfloat": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
}
_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_GLOBAL = re.compile(r"(@[\w.]+) = .*?\[(\d+) x (\w+)\]")
_WORDS = ("nsw", "nuw", "inbounds")


@dataclass(frozen=True)
class Layout:
    """Terms, the type of an operand's elements and of the sums, and ``A k`` by thread, register and
    bit."""

    terms: int
    operand: np.dtype
    sums: np.dtype
    term: Callable[[int, int, int], int]


def _halves(lane: int, gpr: int, bits: int) -> int:
    return 4 * (lane // 16) + 2 * gpr + bits // 16


def _bytes(lane: int, gpr: int, bits: int) -> int:
    return 8 * (lane // 16) + 4 * gpr + bits // 8


def _more(lane: int, gpr: int, bits: int) -> int:
    return 8 * (lane // 16) + 2 * gpr + bits // 16


F32, I32 = np.dtype(np.float32), np.dtype(np.int32)
LAYOUTS: Mapping[str, Layout] = {
    "f32.16x16x16f16": Layout(16, np.dtype(np.float16), F32, _halves),
    "f32.16x16x16bf16.1k": Layout(16, np.dtype(ml_dtypes.bfloat16), F32, _halves),
    "i32.16x16x32.i8": Layout(32, np.dtype(np.int8), I32, _bytes),
    "f32.16x16x32.fp8.fp8": Layout(32, np.dtype(ml_dtypes.float8_e4m3fn), F32, _bytes),
    "f32.16x16x32.bf8.bf8": Layout(32, np.dtype(ml_dtypes.float8_e5m2), F32, _bytes),
    "f32.16x16x32.f16": Layout(32, np.dtype(np.float16), F32, _more),
    "f32.16x16x32.bf16": Layout(32, np.dtype(ml_dtypes.bfloat16), F32, _more),
    "i32.16x16x64.i8": Layout(
        64, np.dtype(np.int8), I32, lambda lane, gpr, bits: 16 * (lane // 16) + 4 * gpr + bits // 8
    ),
    "i32.16x16x16i8": Layout(
        16, np.dtype(np.int8), I32, lambda lane, gpr, bits: 4 * (lane // 16) + bits // 8
    ),
    "f32.16x16x4f32": Layout(4, F32, F32, lambda lane, gpr, bits: lane // 16),
}
"""Of all of them ``A i`` and ``B j`` are ``lane % 16``, ``B k`` is ``A k``, ``D i`` is
``4 * (lane / 16) + GPR`` and ``D j`` is ``lane % 16``."""


def mfma(name: str, a: Array, b: Array, c: Array) -> Array:
    """What each thread has of ``D = A B + C``, of what each has of the operands."""
    layout = LAYOUTS[name]
    left = np.zeros((16, layout.terms), np.float64)
    right = np.zeros((layout.terms, 16), np.float64)
    first, second = (np.ascontiguousarray(x).view(layout.operand) for x in (a, b))
    bits = 8 * layout.operand.itemsize
    for lane in range(WAVE):
        for place in range(first.shape[1]):
            term = layout.term(lane, place * bits // 32, place * bits % 32)
            left[lane % 16, term] = first[lane, place]
            right[term, lane % 16] = second[lane, place]
    product, sums = left @ right, np.ascontiguousarray(c).view(layout.sums)
    found = np.zeros_like(sums)
    for lane in range(WAVE):
        for gpr in range(4):
            found[lane, gpr] = sums[lane, gpr] + product[4 * (lane // 16) + gpr, lane % 16]
    return found


class Wave:
    """Runs the one kernel in ``text``, with ``arrays`` in memory."""

    def __init__(self, text: str, arrays: Mapping[str, Array]) -> None:
        sizes = {name: array.nbytes for name, array in arrays.items()}
        for name, count, type_ in _GLOBAL.findall(text):
            sizes[name] = int(count) * _TYPES[type_].itemsize
        self._values: dict[str, Array] = {}
        end = 0
        for name, size in sizes.items():
            self._values[name] = np.full((WAVE, 1), end, np.uint64)
            end += size + -size % 64
        self._memory = np.zeros(end, np.uint8)
        self._private = np.zeros((WAVE, 1 << 12), np.uint8)
        self._allocated = 0
        for name, array in arrays.items():
            first = int(self._values[name][0, 0])
            self._memory[first : first + array.nbytes] = array.reshape(-1).view(np.uint8)
        body = text.split("entry:\n")[1].split("ret void")[0]
        for line in map(str.strip, body.strip().splitlines()):
            self._run(line)

    def array(self, name: str, like: Array) -> Array:
        """What is in memory now where an array was, of the type and shape of ``like``."""
        first = int(self._values[name][0, 0])
        return self._memory[first : first + like.nbytes].view(like.dtype).reshape(like.shape)

    def _run(self, line: str) -> None:
        if line.startswith("store"):
            value, pointer = line.removeprefix("store ").split(", ")[:2]
            self._store(self._typed(value), self._typed(pointer))
        elif " = " in line:
            name, instruction = line.split(" = ", 1)
            words = [word for word in instruction.split(" ") if word not in _WORDS]
            self._values[name] = self._result(words[0], " ".join(words[1:]))
        else:
            assert line.startswith(("fence", "call void @llvm.amdgcn.s.barrier()")), line

    def _result(self, operation: str, rest: str) -> Array:
        parts = rest.split(", ")
        match operation:
            case _ if operation in _OPERATIONS:
                left, type_ = self._typed(parts[0]), _type_of(parts[0])
                return _OPERATIONS[operation](left, self._operand(type_, parts[1]))
            case "zext" | "fptrunc":
                given, to = rest.split(" to ")
                return self._typed(given).astype(_type(to)[0])
            case "bitcast":
                given, to = rest.split(" to ")
                return np.ascontiguousarray(self._typed(given)).view(_type(to)[0])
            case "addrspacecast":
                return self._values[rest.split(" to ")[0].split(" ")[-1]]
            case "alloca":
                self._allocated += 64
                return np.full((WAVE, 1), PRIVATE + self._allocated - 64, np.uint64)
            case "getelementptr":
                size = np.uint64(_type(parts[0])[0].itemsize)
                return self._typed(parts[1]) + self._typed(parts[2]) * size
            case "load":
                return self._load(parts[0], self._typed(parts[1]))
            case "insertelement":
                found = self._typed(parts[0]).copy()
                found[:, int(parts[2].split(" ")[1])] = self._typed(parts[1])[:, 0]
                return found
            case "extractelement":
                place = int(parts[1].split(" ")[1])
                return self._typed(parts[0])[:, place : place + 1]
            case "shufflevector":
                if not rest.endswith("zeroinitializer"):
                    both = np.concatenate([self._typed(part) for part in parts[:2]], axis=1)
                    assert rest.split(", <")[-1] == _in_order(both.shape[1])
                    return both
                return np.repeat(self._typed(parts[0])[:, :1], _type(_type_of(parts[2]))[1], 1)
            case _:
                assert operation == "call", operation
                return self._called(rest)

    def _called(self, rest: str) -> Array:
        callee, given = rest.rstrip(")").split("(")
        match callee.split("@llvm.amdgcn.")[1]:
            case "workitem.id.x":
                return LANES.astype(np.uint32)[:, None]
            case "workgroup.id.x":
                return np.zeros((WAVE, 1), np.uint32)
            case name:
                operands = given.split(", ")
                assert operands[3:] == ["i32 0"] * 3
                return mfma(name.removeprefix("mfma."), *map(self._typed, operands[:3]))

    def _typed(self, text: str) -> Array:
        """The value of an operand behind its type."""
        return self._operand(_type_of(text), text.split(" ")[-1])

    def _operand(self, type_: str, operand: str) -> Array:
        if operand in self._values:
            return self._values[operand]
        dtype, lanes = _type(type_)
        number = 0 if operand == "poison" else int(operand)
        return np.full((WAVE, lanes), number, dtype)

    def _places(self, pointers: Array, size: int) -> tuple[Array, Array] | Array:
        """Where the bytes of each thread are."""
        places = pointers.astype(np.int64) + np.arange(size)
        return (LANES[:, None], places - PRIVATE) if places[0, 0] >= PRIVATE else places

    def _of(self, pointers: Array) -> Array:
        return self._private if pointers[0, 0] >= PRIVATE else self._memory

    def _load(self, type_: str, pointers: Array) -> Array:
        dtype, lanes = _type(type_)
        found = self._of(pointers)[self._places(pointers, lanes * dtype.itemsize)]
        return np.ascontiguousarray(found).view(dtype)

    def _store(self, value: Array, pointers: Array) -> None:
        raw = np.ascontiguousarray(value).view(np.uint8)
        self._of(pointers)[self._places(pointers, raw.shape[1])] = raw


_OPERATIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "mul": np.multiply,
    "add": np.add,
    "urem": np.remainder,
    "udiv": np.floor_divide,
    "fmul": np.multiply,
    "fadd": np.add,
    "ashr": np.right_shift,
    "and": np.bitwise_and,
    "sub": np.subtract,
}


def _in_order(count: int) -> str:
    """The end of a shuffle that puts two vectors one behind the other."""
    return f"{count} x i32> <{', '.join(f'i32 {n}' for n in range(count))}>"


def _type_of(text: str) -> str:
    """What an operand's text begins with."""
    return text.rsplit(" ", 1)[0]


def _type(type_: str) -> tuple[np.dtype, int]:
    """Of elements, and how many."""
    vector = _VECTOR.fullmatch(type_)
    return (_TYPES[vector[2]], int(vector[1])) if vector else (_TYPES[type_], 1)
