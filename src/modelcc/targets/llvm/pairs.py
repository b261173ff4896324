"""Sums of two neighbouring products of i16, for which most processors have one instruction."""

from __future__ import annotations

from modelcc.targets.llvm.code import Code

_INSTRUCTIONS = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}
"""By the lanes of i32 that they give."""


class PairCode:
    """Emits such sums into ``code``; operands are vectors of as many lanes of i32."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def has(self, lanes: int) -> bool:
        """Whether the processor has the instruction for that many lanes."""
        return lanes in _INSTRUCTIONS and 32 * lanes <= self._code.instructions.short_dots

    def dot(self, a: str, b: str, lanes: int) -> str:
        """Products of the lower and of the upper halves of the lanes, added."""
        x, y = (self._shorts(value, f"<{lanes} x i32>", lanes) for value in (a, b))
        return self._instruction(x, y, lanes)

    def dot4(self, a: str, b: str, c: str, lanes: int) -> str:
        """``c`` plus the products of ``a`` by the i8 ``b``, whose four bytes per lane are added.

        Bytes at even places and those at odd ones are halves of lanes already: no shuffles.
        """
        shorts, words = f"<{2 * lanes} x i16>", f"<{lanes} x i32>"
        a, b = self._shorts(a, words, lanes), self._shorts(b, f"<{4 * lanes} x i8>", lanes)
        eight, low = (f"splat (i16 {n})" for n in (8, 255))
        up = self._code.emit(f"shl {shorts} {b}, {eight}")
        halves = (
            (f"and {shorts} {a}, {low}", f"ashr {shorts} {up}, {eight}"),
            (f"lshr {shorts} {a}, {eight}", f"ashr {shorts} {b}, {eight}"),
        )
        for pair in halves:
            x, y = (self._code.emit(half) for half in pair)
            c = self._code.emit(f"add {words} {c}, {self._instruction(x, y, lanes)}")
        return c

    def _shorts(self, value: str, type_: str, lanes: int) -> str:
        return self._code.emit(f"bitcast {type_} {value} to <{2 * lanes} x i16>")

    def _instruction(self, a: str, b: str, lanes: int) -> str:
        shorts, words = f"<{2 * lanes} x i16>", f"<{lanes} x i32>"
        callee = self._code.intrinsic(words, _INSTRUCTIONS[lanes], f"{shorts}, {shorts}")
        return self._code.emit(f"call {callee}({shorts} {a}, {shorts} {b})")
