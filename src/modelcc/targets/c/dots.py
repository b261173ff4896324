"""Dot products of bytes as inline functions: VNNI's instruction if there is one, else a loop."""

from __future__ import annotations

from modelcc.ir.types import I8, I32, U8
from modelcc.targets.c.prelude import Prelude

_INSTRUCTIONS = {
    16: ("__AVX512VNNI__", "_mm512_dpbusd_epi32", "__m512i"),
    8: ("__AVXVNNI__", "_mm256_dpbusd_avx_epi32", "__m256i"),
    4: ("__AVXVNNI__", "_mm_dpbusd_avx_epi32", "__m128i"),
}
"""Lanes: the macro of a compiler that has the instruction, its function and vector type."""


class DotFunctions:
    """Names of inline functions, defined in ``prelude``."""

    def __init__(self, prelude: Prelude) -> None:
        self._prelude = prelude

    def dot4(self, lanes: int, repeated: bool) -> str:
        """``(u8, i8, i32) -> i32`` as :class:`~modelcc.ir.loop.Dot4`; ``repeated``: the first
        operand has four lanes."""
        few, a = self._prelude.vector(U8, 4), self._prelude.vector(U8, 4 * lanes)
        b = self._prelude.vector(I8, 4 * lanes)
        c = self._prelude.vector(I32, lanes) if lanes > 1 else "int32_t"
        if not repeated or lanes == 1:
            return self._prelude.function(
                f"dot4x{lanes}", c, f"{a} a, {b} b, {c} c", lambda: self._body(lanes)
            )
        whole = self.dot4(lanes, repeated=False)
        return self._prelude.function(
            f"dot4x{lanes}_repeated", c, f"{few} a, {b} b, {c} c",
            lambda: [
                "int32_t word;", "memcpy(&word, &a, sizeof word);",
                f"return {whole}(({a})(word - ({c}){{0}}), b, c);",
            ],
        )  # fmt: skip

    def _body(self, lanes: int) -> list[str]:
        target = "c[l]" if lanes > 1 else "c"
        loop = [
            f"for (int l = 0; l < {lanes}; l++)", "    for (int q = 0; q < 4; q++)",
            f"        {target} += a[4 * l + q] * b[4 * l + q];", "return c;",
        ]  # fmt: skip
        if lanes not in _INSTRUCTIONS:
            return loop
        macro, name, type_ = _INSTRUCTIONS[lanes]
        self._prelude.include("immintrin.h", macro)
        call = f"return (i32x{lanes}){name}(({type_})c, ({type_})a, ({type_})b);"
        return [f"#ifdef {macro}", call, "#else", *loop, "#endif"]
