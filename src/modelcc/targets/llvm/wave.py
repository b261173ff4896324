"""Routines on fragments by a wave of 64 threads, as each of them is told (AMD's matrix cores)."""

from __future__ import annotations

from math import gcd

from modelcc.ir.index import Index
from modelcc.ir.loop import RoutineCall
from modelcc.ir.loop_text import statement_text
from modelcc.targets.isa.amd_mfma import (
    WAVE,
    WaveClear,
    WaveLoad,
    WaveMultiply,
    WaveScale,
    WaveStore,
)
from modelcc.targets.isa.fragments import SIDE, fragment_bytes
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.expressions import ExpressionCode
from modelcc.targets.llvm.values import memory_type, value_type
from modelcc.targets.llvm.warp import WarpCode

_OWN = fragment_bytes(WAVE)
"""Bytes of an operand's row, or column, that a thread has."""

_COLUMNS = SIDE * SIDE // WAVE
"""Neighbouring sums of a row that a thread has."""

_REGISTER = 4
"""Bytes."""

_OPERAND, _BITS = "<2 x i32>", 64
"""What a thread has of an operand's fragment, and its size."""


class WaveCode:
    """Emits routines on fragments of a wave into ``code``, by the registers of ``warp``."""

    def __init__(self, code: Code, warp: WarpCode, expressions: ExpressionCode) -> None:
        self._code = code
        self._warp = warp
        self._expressions = expressions
        self._index = expressions.index

    def call(self, s: RoutineCall) -> bool:
        """A routine of a wave; whether it is one."""
        assert self._code.groups is not None
        kind = self._code.groups.waves.get(s.routine)
        if kind is None or self._code.warp != WAVE:
            return False
        match kind:
            case WaveLoad():
                self._load(s, kind)
            case WaveMultiply():
                self._multiply(s, kind)
            case WaveClear():
                self._warp.clear(s)
            case WaveScale():
                self._scale(s)
            case WaveStore():
                self._store(s, kind)
        return True

    def _load(self, s: RoutineCall, kind: WaveLoad) -> None:
        """Terms of a row that lie side by side, or a stride apart."""
        given, (stride,) = s.arguments[1], s.sizes
        buffer = self._expressions.memory.buffer(given.buffer)[1]
        if buffer.space != "shared":
            raise NotImplementedError(
                f"operands of a wave are loaded from shared memory: '{statement_text(s)}'"
            )
        each = buffer.dtype.bytes
        count, type_ = _OWN // each, f"i{8 * each}"
        row, term = self._row, self._scaled(self._quarter, count)
        pitch = self._index.operand(stride)
        if not kind.apart:
            at = self._sum(self._times(row, pitch), term)
            known = gcd(self._known(given.offset, stride, count) * each, buffer.align)
            found = self._loaded(s, type_, at, given.offset, _OPERAND, known)
            self._write(s, _OPERAND, found)
            return
        at = self._sum(self._times(term, pitch), self._scaled(row, kind.every))
        found = "poison"
        for n in range(count):
            offset = given.offset + stride * n
            one = self._loaded(s, type_, at, offset, type_, each)
            found = self._code.emit(
                f"insertelement <{count} x {type_}> {found}, {type_} {one}, i64 {n}", "terms"
            )
        whole = self._code.emit(f"bitcast <{count} x {type_}> {found} to {_OPERAND}", "fragment")
        self._write(s, _OPERAND, whole)

    def _loaded(
        self, s: RoutineCall, element: str, at: str, offset: Index, type_: str, align: int
    ) -> str:
        """What is ``at`` elements behind an ``offset`` of the routine's memory."""
        first = self._expressions.memory.address(s.arguments[1].buffer, offset)
        pointer = self._code.emit(f"getelementptr {element}, ptr {first}, i64 {at}", "p")
        return self._code.emit(f"load {type_}, ptr {pointer}, align {align}", "v")

    def _multiply(self, s: RoutineCall, kind: WaveMultiply) -> None:
        """``%b`` comes first: it has the rows of what the instruction makes."""
        left, right = (self._terms(s, n, kind) for n in (2, 1))
        sums = self._read(s, 0, kind.sums)
        operand = kind.operand
        types = f"{operand}, {operand}, {kind.sums}, i32, i32, i32"
        callee = self._code.intrinsic(kind.sums, kind.intrinsic, types)
        for part in range(max(_BITS // kind.bits, 1)):
            first, second = (self._part(v, part, kind) for v in (left, right))
            given = (
                f"{operand} {first}, {operand} {second}, {kind.sums} {sums}, i32 0, i32 0, i32 0"
            )
            sums = self._code.emit(f"call {callee}({given})", "product")
        self._write(s, kind.sums, sums)

    def _terms(self, s: RoutineCall, argument: int, kind: WaveMultiply) -> str:
        """What a thread has of an operand: of one fragment, or of two."""
        first = self._read(s, argument, _OPERAND)
        if kind.bits <= _BITS:
            return first
        slot = self._warp.first(s, argument)
        behind = self._code.emit(f"getelementptr i8, ptr {slot}, i64 {_OWN}", "slot")
        second = self._code.emit(f"load {_OPERAND}, ptr {behind}, align {_REGISTER}", "r")
        places = "i32 0, i32 1, i32 2, i32 3"
        both = f"{_OPERAND} {first}, {_OPERAND} {second}, <4 x i32> <{places}>"
        return self._code.emit(f"shufflevector {both}", "terms")

    def _part(self, value: str, part: int, kind: WaveMultiply) -> str:
        """Of an operand what one instruction takes."""
        if kind.bits >= _BITS:
            type_ = f"<{kind.bits // 32} x i32>"
            if kind.operand == type_:
                return value
            return self._code.emit(f"bitcast {type_} {value} to {kind.operand}", "terms")
        one = self._code.emit(f"extractelement {_OPERAND} {value}, i64 {part}", "terms")
        if kind.operand == "i32":
            return one
        return self._code.emit(f"bitcast i32 {one} to {kind.operand}", "terms")

    def _scale(self, s: RoutineCall) -> None:
        """A thread has sums of one row."""
        factors = s.arguments[1]
        first = self._expressions.memory.address(factors.buffer, factors.offset)
        pointer = self._code.emit(f"getelementptr float, ptr {first}, i64 {self._row}", "p")
        factor = self._code.emit(f"load float, ptr {pointer}, align 4", "factor")
        every = self._expressions.memory.broadcast(factor, "float", _COLUMNS)
        type_ = f"<{_COLUMNS} x float>"
        sums = self._read(s, 0, type_)
        scaled = self._code.emit(f"fmul {type_} {sums}, {every}", "scaled")
        self._write(s, type_, scaled)

    def _store(self, s: RoutineCall, kind: WaveStore) -> None:
        """Neighbours of a row at once, or each in its place."""
        memory, (stride,), given = self._expressions.memory, s.sizes, s.arguments[0]
        to = memory.buffer(given.buffer)[1]
        sums = memory.buffer(s.arguments[1].buffer)[1].dtype
        values = self._read(s, 1, value_type(sums, _COLUMNS))
        found = self._expressions.arithmetic.convert(values, sums, to.dtype, _COLUMNS)
        pitch = self._times(self._row, self._index.operand(stride))
        at = self._sum(pitch, self._scaled(self._quarter, _COLUMNS * kind.every))
        known = gcd(self._known(given.offset, stride, _COLUMNS) * to.dtype.bytes, to.align)
        first = memory.address(given.buffer, given.offset)
        element, type_ = memory_type(to.dtype), memory_type(to.dtype, _COLUMNS)
        pointer = self._code.emit(f"getelementptr {element}, ptr {first}, i64 {at}", "p")
        if kind.every == 1:
            self._code.effect(f"store {type_} {found}, ptr {pointer}, align {known & -known}")
            return
        for n in range(_COLUMNS):
            one = self._code.emit(f"extractelement {type_} {found}, i64 {n}", "sum")
            place = f"getelementptr {element}, ptr {pointer}, i64 {n * kind.every}"
            own = self._code.emit(place, "p")
            self._code.effect(f"store {element} {one}, ptr {own}, align {to.dtype.bytes}")

    # --- registers and places

    def _read(self, s: RoutineCall, argument: int, type_: str) -> str:
        slot = self._warp.first(s, argument)
        return self._code.emit(f"load {type_}, ptr {slot}, align {_REGISTER}", "r")

    def _write(self, s: RoutineCall, type_: str, value: str) -> None:
        slot = self._warp.first(s, 0)
        self._code.effect(f"store {type_} {value}, ptr {slot}, align {_REGISTER}")

    @property
    def _row(self) -> str:
        """Of ``%a`` and ``%c``, and the column of ``%b``."""
        return self._lane("urem")

    @property
    def _quarter(self) -> str:
        """Which one of a row's terms, or columns, a thread has."""
        return self._lane("udiv")

    def _lane(self, operation: str) -> str:
        lane = self._index.operand(self._code.lane_index)
        return self._code.emit(f"{operation} i64 {lane}, {SIDE}", "lane")

    def _known(self, offset: Index, stride: Index, count: int) -> int:
        """Elements whose multiples the places of threads are."""
        return gcd(self._index.divisor(offset), self._index.divisor(stride), count)

    def _scaled(self, value: str, by: int) -> str:
        return self._times(value, str(by))

    def _times(self, left: str, right: str) -> str:
        return self._code.emit(f"mul i64 {left}, {right}", "scaled")

    def _sum(self, left: str, right: str) -> str:
        return self._code.emit(f"add i64 {left}, {right}", "at")
