"""Routines on fragments by a wave, as code of one thread (AMD's matrix instructions)."""

from __future__ import annotations

from math import gcd

from modelcc.ir.index import Index
from modelcc.ir.loop import RoutineCall
from modelcc.ir.loop_text import statement_text
from modelcc.ir.types import F32
from modelcc.targets.isa.fragments import SIDE
from modelcc.targets.isa.wave_fragments import (
    REGISTER,
    WaveBoundary,
    WaveClear,
    WaveLayout,
    WaveLoad,
    WaveMultiply,
    WaveOperand,
    WaveScale,
    WaveStore,
)
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.dialect import ACROSS
from modelcc.targets.llvm.expressions import ExpressionCode
from modelcc.targets.llvm.values import memory_type, value_type
from modelcc.targets.llvm.warp import WarpCode

_PAIRS = ((0x01000504, 0x05040100), (0x03020706, 0x07060302))
"""Byte selectors that pack the low halves of two registers, or the high ones: with the first
register's in front, or the second one's.  Bytes 0 to 3 are the second register's."""


class WaveCode:
    """Emits routines on fragments of a wave into ``code``, with the registers of ``warp``."""

    def __init__(self, code: Code, warp: WarpCode, expressions: ExpressionCode) -> None:
        self._code = code
        self._warp = warp
        self._expressions = expressions
        self._index = expressions.index

    @property
    def _layout(self) -> WaveLayout:
        assert self._code.groups is not None
        assert self._code.groups.waves is not None
        return self._code.groups.waves.layout

    @property
    def _operand(self) -> str:
        """The type of a thread's part of an operand's fragment."""
        return f"<{self._layout.operand_bytes // REGISTER} x i32>"

    def call(self, s: RoutineCall) -> bool:
        """A routine of a wave; whether it is one."""
        waves = self._code.groups and self._code.groups.waves
        kind = waves.routines.get(s.routine) if waves else None
        if kind is None or self._code.warp != self._layout.wave:
            return False
        match kind:
            case WaveLoad():
                self._load(s, kind)
            case WaveMultiply():
                self._multiply(s, kind)
            case WaveOperand():
                self._as_operand(s)
            case WaveBoundary():
                callee = self._code.intrinsic("void", "llvm.amdgcn.sched.barrier", "i32")
                self._code.effect(f"call {callee}(i32 0)")
            case WaveClear():
                self._warp.clear(s)
            case WaveScale():
                self._scale(s)
            case WaveStore():
                self._store(s, kind)
        return True

    def _load(self, s: RoutineCall, kind: WaveLoad) -> None:
        """Terms (K) of a row that are contiguous, or a stride apart."""
        given, (stride,) = s.arguments[1], s.sizes
        buffer = self._expressions.memory.buffer(given.buffer)[1]
        if buffer.space != "shared":
            raise NotImplementedError(
                f"operands of a wave are loaded from shared memory: '{statement_text(s)}'"
            )
        each, operand = buffer.dtype.bytes, self._operand
        count, type_ = self._layout.operand_bytes // each, f"i{8 * each}"
        row, pitch, term = self._row, self._index.operand(stride), "0"
        if self._layout.copies == 1:
            term = self._scaled(self._part_of_row, count)
        if not kind.apart:
            at = self._sum(self._times(row, pitch), term)
            known = gcd(self._known(given.offset, stride, count) * each, buffer.align)
            self._write(s, operand, self._loaded(s, type_, at, given.offset, operand, known))
            return
        at = self._sum(self._times(term, pitch), self._scaled(row, kind.every))
        found = "poison"
        for n in range(count):
            one = self._apart(s, kind.every, at, given.offset + stride * n)
            found = self._code.emit(
                f"insertelement <{count} x {type_}> {found}, {type_} {one}, i64 {n}", "terms"
            )
        whole = self._code.emit(f"bitcast <{count} x {type_}> {found} to {operand}", "fragment")
        self._write(s, operand, whole)

    def _apart(self, s: RoutineCall, every: int, at: str, offset: Index) -> str:
        """One of ``every`` neighbours, which are loaded together if aligned: other loads use the
        rest."""
        buffer = self._expressions.memory.buffer(s.arguments[1].buffer)[1]
        each, offset = buffer.dtype.bytes, self._index.resolved(offset)
        type_ = f"i{8 * each}"
        which = (offset if isinstance(offset, int) else offset.const) % every
        known = gcd(self._index.divisor(offset - which), self._index.divisor(s.sizes[0]), every)
        if known < every or buffer.align % (every * each) or every == 1:
            return self._loaded(s, type_, at, offset, type_, each)
        together = f"<{every} x {type_}>"
        all_ = self._loaded(s, type_, at, offset - which, together, every * each)
        return self._code.emit(f"extractelement {together} {all_}, i64 {which}", "term")

    def _loaded(
        self, s: RoutineCall, element: str, at: str, offset: Index, type_: str, align: int
    ) -> str:
        """The element ``at`` elements after an ``offset`` of the routine's memory."""
        first = self._expressions.memory.address(s.arguments[1].buffer, offset)
        pointer = self._code.emit(f"getelementptr {element}, ptr {first}, i64 {at}", "p")
        return self._code.emit(f"load {type_}, ptr {pointer}, align {align}", "v")

    def _multiply(self, s: RoutineCall, kind: WaveMultiply) -> None:
        """``%b`` comes first: it has the rows of the instruction's result."""
        left, right = (self._terms(s, n, kind) for n in (1, 2))
        sums, operand = self._read(s, 0, kind.sums), kind.operand
        kinds = {"a": operand, "b": operand, "c": kind.sums}
        types = [kinds.get(word) or word.split(" ")[0] for word in kind.given]
        callee = self._code.intrinsic(kind.sums, kind.intrinsic, ", ".join(types))
        for part in range(max(8 * self._layout.operand_bytes // kind.bits, 1)):
            values = {
                "a": f"{operand} {self._part(left, part, kind)}",
                "b": f"{operand} {self._part(right, part, kind)}",
                "c": f"{kind.sums} {sums}",
            }
            given = ", ".join(values.get(word, word) for word in kind.given)
            sums = self._code.emit(f"call {callee}({given})", "product")
        self._write(s, kind.sums, sums)

    def _terms(self, s: RoutineCall, argument: int, kind: WaveMultiply) -> str:
        """A thread's part of an operand: of one fragment, or of two."""
        own, operand = self._layout.operand_bytes, self._operand
        first = self._read(s, argument, operand)
        if kind.bits <= 8 * own:
            return first
        slot = self._warp.first(s, argument)
        behind = self._code.emit(f"getelementptr i8, ptr {slot}, i64 {own}", "slot")
        second = self._code.emit(f"load {operand}, ptr {behind}, align {REGISTER}", "r")
        return self._shuffled(operand, first, second, range(2 * own // REGISTER))

    def _part(self, value: str, part: int, kind: WaveMultiply) -> str:
        """The part of an operand that one instruction takes."""
        own, count = self._layout.operand_bytes // REGISTER, kind.bits // 32
        if count == 1:
            one = self._code.emit(f"extractelement {self._operand} {value}, i64 {part}", "terms")
            return one if kind.operand == "i32" else self._as(one, "i32", kind.operand)
        if count < own:
            places = range(part * count, (part + 1) * count)
            value = self._shuffled(self._operand, value, "poison", places)
        return self._as(value, f"<{count} x i32>", kind.operand)

    def _as_operand(self, s: RoutineCall) -> None:
        """A thread's own sums of a row, rounded, and the others if operands have whole rows."""
        own, layout = self._layout.own, self._layout
        to = s.routine.parameters[0].buffer.dtype
        sums = self._read(s, 1, value_type(F32, own))
        rounded = self._expressions.arithmetic.convert(sums, F32, to, own)
        count = 2 * own // REGISTER
        packed = self._as(rounded, memory_type(to, own), f"<{count} x i32>")
        if layout.copies > 1:
            count, packed = 2 * count, self._both_halves(packed, count)
        self._write(s, f"<{count} x i32>", packed)

    def _both_halves(self, packed: str, count: int) -> str:
        """Pairs of neighbours, of which a thread has one in ``packed``, and the one 16 threads away
        the other."""
        half = self._part_of_row
        is_first = self._code.emit(f"icmp eq i64 {half}, 0", "first")
        orders = [
            self._code.emit(f"select i1 {is_first}, i32 {mine}, i32 {others}", "order")
            for mine, others in _PAIRS
        ]
        across = self._code.intrinsic(
            "i32", "llvm.amdgcn.permlanex16.i32", "i32, i32, i32, i32, i1, i1"
        )
        merge = self._code.intrinsic("i32", "llvm.amdgcn.perm", "i32, i32, i32")
        found, type_ = "poison", f"<{2 * count} x i32>"
        for n in range(count):
            own = self._code.emit(f"extractelement <{count} x i32> {packed}, i64 {n}", "own")
            given = f"i32 {own}, i32 {own}, {ACROSS}"
            other = self._code.emit(f"call {across}({given})", "other")
            for part, order in enumerate(orders):
                pair = self._code.emit(f"call {merge}(i32 {own}, i32 {other}, i32 {order})", "pair")
                place = f"{type_} {found}, i32 {pair}, i64 {2 * n + part}"
                found = self._code.emit(f"insertelement {place}", "terms")
        return found

    def _scale(self, s: RoutineCall) -> None:
        """Scales a thread's sums, which are of one row."""
        factors = s.arguments[1]
        first = self._expressions.memory.address(factors.buffer, factors.offset)
        pointer = self._code.emit(f"getelementptr float, ptr {first}, i64 {self._row}", "p")
        factor = self._code.emit(f"load float, ptr {pointer}, align 4", "factor")
        every = self._expressions.memory.broadcast(factor, "float", self._layout.own)
        type_ = f"<{self._layout.own} x float>"
        sums = self._read(s, 0, type_)
        scaled = self._code.emit(f"fmul {type_} {sums}, {every}", "scaled")
        self._write(s, type_, scaled)

    def _store(self, s: RoutineCall, kind: WaveStore) -> None:
        """Neighbours of a row at once, or each at its own address."""
        memory, (stride,), given = self._expressions.memory, s.sizes, s.arguments[0]
        own, every = self._layout.own, self._layout.apart * kind.every
        to = memory.buffer(given.buffer)[1]
        sums = memory.buffer(s.arguments[1].buffer)[1].dtype
        values = self._read(s, 1, value_type(sums, own))
        found = self._expressions.arithmetic.convert(values, sums, to.dtype, own)
        pitch = self._times(self._row, self._index.operand(stride))
        begin = self._layout.first * kind.every
        at = self._sum(pitch, self._scaled(self._part_of_row, begin))
        known = gcd(self._known(given.offset, stride, begin) * to.dtype.bytes, to.align)
        first = memory.address(given.buffer, given.offset)
        element, type_ = memory_type(to.dtype), memory_type(to.dtype, own)
        pointer = self._code.emit(f"getelementptr {element}, ptr {first}, i64 {at}", "p")
        if every == 1:
            self._code.effect(f"store {type_} {found}, ptr {pointer}, align {known & -known}")
            return
        for n in range(own):
            one = self._code.emit(f"extractelement {type_} {found}, i64 {n}", "sum")
            place = f"getelementptr {element}, ptr {pointer}, i64 {n * every}"
            address = self._code.emit(place, "p")
            self._code.effect(f"store {element} {one}, ptr {address}, align {to.dtype.bytes}")

    # --- registers and indices

    def _read(self, s: RoutineCall, argument: int, type_: str) -> str:
        slot = self._warp.first(s, argument)
        return self._code.emit(f"load {type_}, ptr {slot}, align {REGISTER}", "r")

    def _write(self, s: RoutineCall, type_: str, value: str) -> None:
        slot = self._warp.first(s, 0)
        self._code.effect(f"store {type_} {value}, ptr {slot}, align {REGISTER}")

    @property
    def _row(self) -> str:
        """The row of ``%a`` and ``%c``, and the column of ``%b``."""
        return self._lane("urem")

    @property
    def _part_of_row(self) -> str:
        """Which part of a row's terms, or columns, a thread holds."""
        return self._lane("udiv")

    def _lane(self, operation: str) -> str:
        lane = self._index.operand(self._code.lane_index)
        return self._code.emit(f"{operation} i64 {lane}, {SIDE}", "lane")

    def _known(self, offset: Index, stride: Index, count: int) -> int:
        """Elements to which the addresses of threads are aligned."""
        return gcd(self._index.divisor(offset), self._index.divisor(stride), count)

    def _scaled(self, value: str, by: int) -> str:
        return self._times(value, str(by))

    def _times(self, left: str, right: str) -> str:
        return self._code.emit(f"mul i64 {left}, {right}", "scaled")

    def _sum(self, left: str, right: str) -> str:
        return self._code.emit(f"add i64 {left}, {right}", "at")

    def _as(self, value: str, type_: str, to: str) -> str:
        return value if type_ == to else self._code.emit(f"bitcast {type_} {value} to {to}")

    def _shuffled(self, type_: str, first: str, second: str, places: range) -> str:
        chosen = ", ".join(f"i32 {place}" for place in places)
        operands = f"{type_} {first}, {type_} {second}, <{len(places)} x i32> <{chosen}>"
        return self._code.emit(f"shufflevector {operands}", "terms")
