"""Warp-level matrix operations, as code of one thread: fragments are its registers."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from modelcc.ir.index import Index
from modelcc.ir.loop import Alloc, Buffer, RoutineCall
from modelcc.ir.loop_text import statement_text
from modelcc.ir.types import F32, DType
from modelcc.targets.isa.fragments import HALF, KEPT
from modelcc.targets.isa.nvidia_mma import (
    MatrixClear,
    MatrixColumns,
    MatrixLoad,
    MatrixMultiply,
    MatrixScale,
    MatrixStore,
)
from modelcc.targets.isa.split_product import LEAST_BEYOND, SMALL
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.dialect import LlvmGroups
from modelcc.targets.llvm.expressions import ExpressionCode
from modelcc.targets.llvm.values import constant, value_type

_LEAST_BEYOND = constant(LEAST_BEYOND, F32)
_REGISTER = 4
"""Bytes of a register."""

_ROW_BYTES = 16
_BLOCK_ROWS = 16
_BLOCKS = ((0, 0), (8, 0), (0, 8), (8, 8))
"""Rows and columns of the parts of sums, of two registers each."""


class WarpCode:
    """Emits routines on fragments into ``code``."""

    def __init__(self, code: Code, groups: LlvmGroups, expressions: ExpressionCode) -> None:
        self._code = code
        self._groups = groups
        self._expressions = expressions
        self._index = expressions.index
        self.fragments: list[str] = []

    def allocate(self, s: Alloc) -> None:
        """This thread's registers of a warp's buffer."""
        count = self._registers(s.buffer)
        self.fragments.append(s.buffer.name)
        align = _ROW_BYTES if self._groups.waves else None
        pointer = self._code.allocate(f"[{count} x i32]", s.buffer.name, align)
        self._code.scope.buffers[s.buffer.name] = (pointer, s.buffer)

    def call(self, s: RoutineCall) -> None:
        """A routine that the machine has an instruction for."""
        kind = self._groups.matrices.get(s.routine)
        if kind is None or self._code.warp != self._groups.warp:
            raise NotImplementedError(
                f"{self._code.warp} threads of {self._groups.name} have no instruction for "
                f"'{statement_text(s)}'"
            )
        match kind:
            case MatrixLoad():
                self._load(s, kind)
            case MatrixColumns():
                self._load_columns(s, kind)
            case MatrixMultiply():
                self._multiply(s, kind)
            case MatrixClear():
                self.clear(s)
            case MatrixScale():
                self._scale(s)
            case MatrixStore():
                self.store(s)

    # --- instructions

    def clear(self, s: RoutineCall) -> None:
        """Zeros, for all that the routine writes."""
        count = self._registers(s.routine.parameters[0].buffer)
        self.write(s, 0, "i32", ["0"] * count)

    def _load(self, s: RoutineCall, kind: MatrixLoad) -> None:
        name, offset = s.arguments[1].buffer, s.arguments[1].offset
        memory, (stride,) = self._expressions.memory, s.sizes
        buffer = memory.buffer(name)[1]
        each = buffer.dtype.bytes
        known = gcd(self._index.divisor(offset) * each, self._index.divisor(stride) * each)
        if buffer.space != "shared" or gcd(known, buffer.align) % _ROW_BYTES:
            raise NotImplementedError(
                f"rows are loaded from {_ROW_BYTES} bytes of shared memory each, on their "
                f"boundaries: '{statement_text(s)}'"
            )
        row, half = self._lane("urem", 16), self._lane("udiv", 16)
        if kind.halves_first:
            low = self._lane("urem", 8)
            row = self._code.emit(f"add i64 {low}, {self._scaled(half, 8)}", "row")
            half = self._code.emit(f"urem i64 {self._lane('udiv', 8)}, 2", "half")
        pitch = self._code.emit(f"mul i64 {row}, {self._index.operand(stride * each)}", "row")
        at = self._code.emit(f"add i64 {pitch}, {self._scaled(half, _ROW_BYTES)}", "at")
        first = memory.address(name, offset)
        pointer = self._code.emit(f"getelementptr i8, ptr {first}, i64 {at}", "p")
        space = f"ptr addrspace({self._groups.shared})"
        pointer = self._code.emit(f"addrspacecast ptr {pointer} to {space}", "p")
        type_ = _structure(["i32"] * 4)
        callee = self._code.intrinsic(type_, kind.intrinsic, space)
        loaded = self._code.emit(f"call {callee}({space} {pointer})", "fragment")
        self.write(s, 0, "i32", self.fields(loaded, type_, 4))

    def _load_columns(self, s: RoutineCall, kind: MatrixColumns) -> None:
        (name, offset), (stride,) = (s.arguments[1].buffer, s.arguments[1].offset), s.sizes
        memory, half = self._expressions.memory, _BLOCK_ROWS // 2
        row = f"mul i64 {self._lane('urem', 4)}, {self._index.operand(stride)}"
        inside = self._code.emit(
            f"add i64 {self._code.emit(row, 'row')}, {self._lane('udiv', 4)}", "at"
        )
        rows, columns = (0, 4 * stride), (0, half)
        if kind.halves_first:
            places = [row + column for column in columns for row in rows]
        else:
            places = [row + column for row in rows for column in columns]
        found: list[str] = []
        for place in places:
            first = memory.address(name, offset + place)
            pointer = self._code.emit(f"getelementptr i32, ptr {first}, i64 {inside}", "p")
            found.append(self._code.emit(f"load i32, ptr {pointer}, align {_REGISTER}", "r"))
        self.write(s, 0, "i32", found)

    def _multiply(self, s: RoutineCall, kind: MatrixMultiply) -> None:
        a, b = (self.read(s, argument, kind.operand, 4) for argument in (1, 2))
        c = self.read(s, 0, kind.sums, 8)
        if kind.split:
            found = self._multiply_parts(kind, a, b)
            totals = zip(c, found, strict=True)
            results = [self._code.emit(f"fadd float {own}, {more}", "c") for own, more in totals]
        else:
            results = self._product(kind, self._rounded(a, kind), self._rounded(b, kind), c)
        self.write(s, 0, kind.sums, results)

    def _product(
        self, kind: MatrixMultiply, a: Sequence[str], b: Sequence[str], c: Sequence[str]
    ) -> list[str]:
        """Sums ``c`` plus products."""
        type_ = _structure([kind.sums] * 4)
        types = [kind.operand] * 6 + [kind.sums] * 4
        callee = self._code.intrinsic(type_, kind.intrinsic, ", ".join(types))
        results: list[str] = []
        for half in range(2):
            given = [*a, *b[2 * half : 2 * half + 2], *c[4 * half : 4 * half + 4]]
            typed = (f"{t} {v}" for t, v in zip(types, given, strict=True))
            found = self._code.emit(f"call {callee}({', '.join(typed)})", "product")
            results += self.fields(found, type_, 4)
        return results

    def _multiply_parts(
        self, kind: MatrixMultiply, a: Sequence[str], b: Sequence[str]
    ) -> list[str]:
        """Products of parts, accumulated from 0, the small ones first."""
        (high_a, low_a), (high_b, low_b) = self._split(a), self._split(b)
        total = ["0.0"] * 8
        for left, right in ((low_a, high_b), (high_a, low_b), (high_a, high_b)):
            total = self._product(kind, left, right, total)
        return total

    def _split(self, values: Sequence[str]) -> tuple[list[str], list[str]]:
        """As :func:`~modelcc.targets.isa.split_product.split` specifies."""
        emit, parts = self._code.emit, (list[str](), list[str]())
        absolute = self._code.intrinsic("float", "llvm.fabs.f32", "float")
        for value in values:
            whole = emit(f"bitcast i32 {value} to float")
            magnitude = emit(f"call {absolute}(float {whole})")
            usual = emit(f"fcmp olt float {magnitude}, {_LEAST_BEYOND}")
            near = emit(f"and i32 {emit(f'add i32 {value}, {HALF}')}, {KEPT}")
            high = emit(f"select i1 {usual}, i32 {near}, i32 {emit(f'and i32 {value}, {SMALL}')}")
            rest = emit(f"fsub float {whole}, {emit(f'bitcast i32 {high} to float')}", "rest")
            parts[0].append(high)
            parts[1].append(emit(f"and i32 {emit(f'bitcast float {rest} to i32')}, {KEPT}", "low"))
        return parts

    def _rounded(self, values: Sequence[str], kind: MatrixMultiply) -> list[str]:
        if not kind.rounding:
            return [*values]
        callee = self._code.intrinsic("i32", kind.rounding, "float")
        floats = [self._code.emit(f"bitcast i32 {v} to float") for v in values]
        return [self._code.emit(f"call {callee}(float {v})") for v in floats]

    def _scale(self, s: RoutineCall) -> None:
        memory, factors = self._expressions.memory, s.arguments[1]
        row = self._lane("udiv", 4)
        found: dict[int, str] = {}
        for rows, _ in _BLOCKS[:2]:
            first = memory.address(factors.buffer, factors.offset + rows)
            pointer = self._code.emit(f"getelementptr float, ptr {first}, i64 {row}", "p")
            found[rows] = self._code.emit(f"load float, ptr {pointer}, align 4", "factor")
        values = self.read(s, 0, "float", 8)
        scaled = [
            self._code.emit(f"fmul float {value}, {found[_BLOCKS[n // 2][0]]}", "scaled")
            for n, value in enumerate(values)
        ]
        self.write(s, 0, "float", scaled)

    def store(self, s: RoutineCall) -> None:
        """Stores 16 rows and columns of each 32 threads."""
        memory, (stride,) = self._expressions.memory, s.sizes
        name, offset = s.arguments[0].buffer, s.arguments[0].offset
        to = memory.buffer(name)[1]
        sums = memory.buffer(s.arguments[1].buffer)[1].dtype
        one, pair = value_type(sums), value_type(sums, 2)
        values = self.read(s, 1, one, 8)
        row, column = self._lane("udiv", 4), self._scaled(self._lane("urem", 4), 2)
        if self._code.warp > self._groups.warp:
            above = self._scaled(self._lane("udiv", self._groups.warp), _BLOCK_ROWS // 2)
            row = self._code.emit(f"add i64 {row}, {above}", "row")
        pitch = self._code.emit(f"mul i64 {row}, {self._index.operand(stride)}", "row")
        inside = self._code.emit(f"add i64 {pitch}, {column}", "at")
        each = to.dtype.bytes
        known = gcd(self._index.divisor(offset), self._index.divisor(stride), 2) * each
        type_, align = value_type(to.dtype, 2), gcd(known, to.align)
        for number, (rows, columns) in enumerate(_BLOCKS):
            first = memory.address(name, offset + stride * rows + columns)
            at = f"getelementptr {value_type(to.dtype)}, ptr {first}, i64 {inside}"
            pointer = self._code.emit(at, "p")
            both = "poison"
            for lane in range(2):
                inserted = f"{one} {values[2 * number + lane]}, i64 {lane}"
                both = self._code.emit(f"insertelement {pair} {both}, {inserted}")
            both = self._expressions.arithmetic.convert(both, sums, to.dtype, 2)
            self._code.effect(f"store {type_} {both}, ptr {pointer}, align {align}")

    # --- registers

    def _registers(self, buffer: Buffer, elements: Index | None = None) -> int:
        elements = buffer.size if elements is None else elements
        assert isinstance(elements, int)
        if self._groups.waves:
            return self._groups.waves.layout.registers(elements, buffer.dtype)
        return elements * buffer.dtype.bytes // (_REGISTER * self._code.warp)

    def slots_of(self, dtype: DType) -> list[str]:
        """The addresses of the registers of all fragments of ``dtype``."""
        slots: list[str] = []
        for name in self.fragments:
            pointer, buffer = self._expressions.memory.buffer(name)
            places = range(self._registers(buffer) if buffer.dtype == dtype else 0)
            slots += [self._slot(pointer, place) for place in places]
        return slots

    def _slot(self, pointer: str, place: int) -> str:
        return self._code.emit(f"getelementptr i32, ptr {pointer}, i64 {place}", "slot")

    def _slots(self, s: RoutineCall, argument: int, count: int) -> list[str]:
        given = s.arguments[argument]
        pointer, buffer = self._expressions.memory.buffer(given.buffer)
        offset = self._index.resolved(given.offset)
        if buffer.space != "warp" or not isinstance(offset, int):
            raise NotImplementedError(
                f"registers of a warp have numbers, so loops over them are unrolled: "
                f"'{statement_text(s)}' takes %{given.buffer}[{offset}]"
            )
        first = self._registers(buffer, offset)
        return [self._slot(pointer, first + n) for n in range(count)]

    def first(self, s: RoutineCall, argument: int) -> str:
        """The address of the first register of an argument."""
        (slot,) = self._slots(s, argument, 1)
        return slot

    def read(self, s: RoutineCall, argument: int, type_: str, count: int) -> list[str]:
        """The first registers of an argument."""
        slots = self._slots(s, argument, count)
        return [self._code.emit(f"load {type_}, ptr {slot}", "r") for slot in slots]

    def write(self, s: RoutineCall, argument: int, type_: str, values: Sequence[str]) -> None:
        """Sets the first registers of an argument."""
        for slot, value in zip(self._slots(s, argument, len(values)), values, strict=True):
            self._code.effect(f"store {type_} {value}, ptr {slot}")

    def fields(self, value: str, type_: str, count: int) -> list[str]:
        """The fields of a structure."""
        return [self._code.emit(f"extractvalue {type_} {value}, {n}", "r") for n in range(count)]

    def _lane(self, operation: str, number: int) -> str:
        lane = self._index.operand(self._code.lane_index)
        return self._code.emit(f"{operation} i64 {lane}, {number}", "lane")

    def _scaled(self, value: str, by: int) -> str:
        return self._code.emit(f"mul i64 {value}, {by}", "scaled")


def _structure(types: Sequence[str]) -> str:
    return f"{{ {', '.join(types)} }}"
