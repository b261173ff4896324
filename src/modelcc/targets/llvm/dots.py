"""Dot products of bytes: one instruction where the processor has it, widened products elsewhere."""

from __future__ import annotations

from modelcc.targets.llvm.byte_dots import byte_dots, has_byte_dots
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.memory import MemoryCode
from modelcc.targets.llvm.pairs import PairCode
from modelcc.targets.llvm.values import integers


class DotCode:
    """Emits :class:`~modelcc.ir.loop.Dot4` into ``code``."""

    def __init__(self, code: Code, memory: MemoryCode) -> None:
        self._code = code
        self._memory = memory
        self._pairs = PairCode(code)

    def dot4(self, a: str, a_lanes: int, b: str, c: str, lanes: int) -> str:
        """``c`` (i32) plus the dot products of groups of four of ``a`` (u8) and ``b`` (i8)."""
        a = self._words(a, a_lanes)
        if a_lanes == 4 and lanes > 1:
            a = self._memory.broadcast(a, "i32", lanes)
        if has_byte_dots(self._code, lanes):
            return byte_dots(self._code, a, self._words(b, 4 * lanes), c, lanes)
        if self._pairs.has(lanes):
            return self._pairs.dot4(a, b, c, lanes)
        return self._widened(a, b, c, lanes)

    def _words(self, value: str, lanes: int) -> str:
        """Groups of four bytes as i32."""
        to = "i32" if lanes == 4 else f"<{lanes // 4} x i32>"
        return self._code.emit(f"bitcast <{lanes} x i8> {value} to {to}")

    def _widened(self, a: str, b: str, c: str, lanes: int) -> str:
        """Products of neighbours are added in pairs, which is how 16-bit multiplies add."""
        count = 4 * lanes
        word = "i32" if lanes == 1 else f"<{lanes} x i32>"
        a = self._code.emit(f"bitcast {word} {a} to <{count} x i8>")
        halves: list[str] = []
        for first in (0, 1):
            x, y = (self._every_second(v, count, first) for v in (a, b))
            x = self._code.emit(f"zext <{count // 2} x i8> {x} to <{count // 2} x i32>")
            y = self._code.emit(f"sext <{count // 2} x i8> {y} to <{count // 2} x i32>")
            halves.append(self._code.emit(f"mul <{count // 2} x i32> {x}, {y}"))
        pairs = self._code.emit(f"add <{count // 2} x i32> {halves[0]}, {halves[1]}")
        if lanes == 1:
            parts = [self._code.emit(f"extractelement <2 x i32> {pairs}, i64 {n}") for n in (0, 1)]
        else:
            parts = [self._every_second(pairs, count // 2, n, "i32") for n in (0, 1)]
        total = self._code.emit(f"add {word} {parts[0]}, {parts[1]}")
        return self._code.emit(f"add {word} {total}, {c}")

    def _every_second(self, value: str, lanes: int, first: int, element: str = "i8") -> str:
        type_ = f"<{lanes} x {element}>"
        chosen = integers(range(first, lanes, 2), "i32")
        return self._code.emit(
            f"shufflevector {type_} {value}, {type_} poison, <{lanes // 2} x i32> {chosen}"
        )
