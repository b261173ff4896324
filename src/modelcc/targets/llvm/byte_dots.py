"""Dot products of four bytes in each lane, for which some processors have one instruction."""

from __future__ import annotations

from modelcc.targets.llvm.code import Code

_INSTRUCTION = "llvm.x86.avx512.vpdpbusd."
"""Its operands are declared as vectors of i32; LLVM selects the AVX-VNNI form by itself."""


def has_byte_dots(code: Code, lanes: int) -> bool:
    """Whether the processor has the instruction for that many lanes of i32."""
    return lanes in (4, 8, 16) and 32 * lanes <= code.instructions.byte_dots


def byte_dots(code: Code, a: str, b: str, c: str, lanes: int) -> str:
    """``c`` plus the dot products of four bytes in each lane: u8 of ``a``, i8 of ``b``."""
    type_ = f"<{lanes} x i32>"
    callee = code.intrinsic(type_, f"{_INSTRUCTION}{32 * lanes}", f"{type_}, {type_}, {type_}")
    return code.emit(f"call {callee}({type_} {c}, {type_} {a}, {type_} {b})")
