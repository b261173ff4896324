"""Conversions between f32 and the 16-bit floats, rounded to nearest even; NaN stays a quiet NaN.

Without an instruction, LLVM would call a function of the compiler runtime library.  A bf16 is the
upper half of an f32: on CPUs it is rounded by an integer addition, since Intel's instruction
flushes subnormal numbers to 0.  The exponent bias of f16 is smaller by 112: rescaling by a
multiplication also handles subnormal numbers; the sum with 0.5, whose last bit weighs 2^-24, rounds
small floats to the spacing of f16's subnormals.
"""

from __future__ import annotations

from modelcc.ir.types import BF16, BOOL, F16, F32, U16, U32, DType
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.values import constant, float_type, value_type

HALVES = (F16, BF16)

_MAGNITUDE, _SIGN = 0x7FFFFFFF, 0x8000
_INFINITY, _INFINITY_F16 = 0x7F800000, 0x7C00
_LEAST_NORMAL = 0x38800000  # 2^-14 as f32
_LEAST_INFINITE = 0x477FF000  # 65520 as f32
_BIAS = 0x38000000  # difference of the exponent biases, in position in an f32
_HALF = 0x3F000000  # 0.5 as f32


class HalfCode:
    """Emits conversions into ``code``; a 16-bit float is its bits, ``i16``."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def widen(self, bits: str, source: DType, lanes: int) -> str:
        """The bits of ``source`` as f32, exactly."""
        if source == BF16 and self._code.instructions.brain_rounding and lanes in (4, 8, 16):
            return self._float(self._pairs(bits, lanes), lanes)
        if source == BF16:
            wide = self._extended(bits, lanes)
            return self._float(self._binary("shl", wide, 16, lanes), lanes)
        if self._code.instructions.half_conversions:
            return self._cast("fpext", self._typed(bits, source, lanes), source, F32, lanes)
        wide = self._extended(bits, lanes)
        sign = self._binary("shl", self._binary("and", wide, _SIGN, lanes), 16, lanes)
        moved = self._binary("shl", self._binary("and", wide, _SIGN - 1, lanes), 13, lanes)
        special = self._test("uge", moved, _INFINITY_F16 << 13, lanes)
        scale = f"{value_type(F32, lanes)} {self._float(moved, lanes)}, "
        scaled = self._code.emit(f"fmul {scale}{constant(2.0**112, F32, lanes)}")
        infinite = self._binary("or", moved, _INFINITY, lanes)
        size = self._select(special, infinite, self._bits(scaled, lanes), lanes)
        return self._float(self._binary("or", sign, size, lanes), lanes)

    def _pairs(self, bits: str, lanes: int) -> str:
        """Each bf16 as the upper half of 32 bits, from registers that hold two of them: a ``zext``
        would be hoisted by LLVM to the load, which may be long before."""
        words = value_type(U32, lanes // 2)
        both = self._code.emit(f"bitcast {value_type(U16, lanes)} {bits} to {words}")
        first = self._binary("shl", both, 16, lanes // 2)
        second = self._binary("and", both, 0xFFFF0000, lanes // 2)
        places = (f"i32 {lane // 2 + lane % 2 * (lanes // 2)}" for lane in range(lanes))
        order = f"<{lanes} x i32> <{', '.join(places)}>"
        return self._code.emit(f"shufflevector {words} {first}, {words} {second}, {order}")

    def narrow(self, value: str, target: DType, lanes: int) -> str:
        """An f32 as the bits of ``target``."""
        known = self._code.instructions
        if known.brain_rounding if target == BF16 else known.half_conversions:
            return self._untyped(self._cast("fptrunc", value, F32, target, lanes), target, lanes)
        if target == BF16:
            return self._brain(value, lanes)
        bits = self._bits(value, lanes)
        size = self._binary("and", bits, _MAGNITUDE, lanes)
        sign = self._binary("and", self._binary("lshr", bits, 16, lanes), _SIGN, lanes)
        moved = self._binary("sub", self._nearest(size, 13, lanes), _BIAS, lanes)
        normal = self._binary("lshr", moved, 13, lanes)
        half = f"{value_type(F32, lanes)} {self._float(size, lanes)}, "
        small = self._code.emit(f"fadd {half}{constant(0.5, F32, lanes)}")
        tiny = self._binary("sub", self._bits(small, lanes), _HALF, lanes)
        is_tiny = self._test("ult", size, _LEAST_NORMAL, lanes)
        is_huge = self._test("uge", size, _LEAST_INFINITE, lanes)
        result = self._select(is_tiny, tiny, normal, lanes)
        result = self._select(is_huge, constant(_INFINITY_F16, U32, lanes), result, lanes)
        is_nan = self._test("ugt", size, _INFINITY, lanes)
        result = self._select(is_nan, constant(0x7E00, U32, lanes), result, lanes)
        return self._truncated(self._binary("or", result, sign, lanes), lanes)

    def _typed(self, bits: str, dtype: DType, lanes: int) -> str:
        """The bits as a value of LLVM's 16-bit float type."""
        types = f"{value_type(dtype, lanes)} {bits} to {float_type(dtype, lanes)}"
        return self._code.emit(f"bitcast {types}")

    def _untyped(self, value: str, dtype: DType, lanes: int) -> str:
        types = f"{float_type(dtype, lanes)} {value} to {value_type(dtype, lanes)}"
        return self._code.emit(f"bitcast {types}")

    def _brain(self, value: str, lanes: int) -> str:
        bits, single = self._bits(value, lanes), value_type(F32, lanes)
        rounded = self._nearest(bits, 16, lanes)
        quiet = self._binary("or", bits, 1 << 22, lanes)
        is_nan = self._code.emit(f"fcmp uno {single} {value}, {value}", "c")
        chosen = self._select(is_nan, quiet, rounded, lanes)
        return self._truncated(self._binary("lshr", chosen, 16, lanes), lanes)

    def _nearest(self, bits: str, cut: int, lanes: int) -> str:
        """An addend that makes truncation of the lowest bits round to nearest even."""
        last = self._binary("and", self._binary("lshr", bits, cut, lanes), 1, lanes)
        nearly = self._binary("add", bits, (1 << (cut - 1)) - 1, lanes)
        return self._binary("add", nearly, last, lanes)

    def _binary(self, name: str, a: str, b: str | int, lanes: int) -> str:
        b = constant(b, U32, lanes) if isinstance(b, int) else b
        return self._code.emit(f"{name} {value_type(U32, lanes)} {a}, {b}")

    def _test(self, predicate: str, value: str, number: int, lanes: int) -> str:
        operands = f"{value_type(U32, lanes)} {value}, {constant(number, U32, lanes)}"
        return self._code.emit(f"icmp {predicate} {operands}", "c")

    def _select(self, condition: str, then: str, other: str, lanes: int) -> str:
        type_, masks = value_type(U32, lanes), value_type(BOOL, lanes)
        return self._code.emit(f"select {masks} {condition}, {type_} {then}, {type_} {other}")

    def _extended(self, bits: str, lanes: int) -> str:
        return self._code.emit(f"zext {value_type(U16, lanes)} {bits} to {value_type(U32, lanes)}")

    def _truncated(self, bits: str, lanes: int) -> str:
        return self._code.emit(f"trunc {value_type(U32, lanes)} {bits} to {value_type(U16, lanes)}")

    def _bits(self, value: str, lanes: int) -> str:
        return self._cast("bitcast", value, F32, U32, lanes)

    def _float(self, bits: str, lanes: int) -> str:
        return self._cast("bitcast", bits, U32, F32, lanes)

    def _cast(self, cast: str, value: str, source: DType, target: DType, lanes: int) -> str:
        from_, to = float_type(source, lanes), float_type(target, lanes)
        return self._code.emit(f"{cast} {from_} {value} to {to}")
