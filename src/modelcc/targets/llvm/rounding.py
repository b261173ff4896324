"""Rounding of floats to integers without a rounding instruction.

Adding 2^23 (2^52 in f64) to a smaller magnitude and subtracting it again leaves the nearest
integer, ties to even; larger numbers are integers.  LLVM would call the C library, lane by lane.
"""

from __future__ import annotations

from modelcc.ir.types import BOOL, F32, DType
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.values import constant, mangled, scalar_type, value_type

INTRINSICS = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven"}
"""LLVM's names of the functions of :mod:`modelcc.ir.scalar`."""


class RoundingCode:
    """Emits rounding into ``code``."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def rounded(self, function: str, value: str, dtype: DType, lanes: int) -> str:
        """``floor``, ``ceil``, ``trunc`` or ``round`` (to even) of an f32 or f64."""
        size = self._intrinsic("fabs", (value,), dtype, lanes)
        whole = constant(2.0 ** (23 if dtype == F32 else 52), dtype, lanes)
        nearest = self._binary("fsub", self._binary("fadd", size, whole, dtype, lanes), whole,
                               dtype, lanes)  # fmt: skip
        if function == "trunc":
            result = self._moved("ogt", nearest, size, "fsub", dtype, lanes)
        else:
            result = self._intrinsic("copysign", (nearest, value), dtype, lanes)
        if function == "floor":
            result = self._moved("ogt", result, value, "fsub", dtype, lanes)
        if function == "ceil":
            result = self._moved("olt", result, value, "fadd", dtype, lanes)
        signed = self._intrinsic("copysign", (result, value), dtype, lanes)
        small = self._code.emit(f"fcmp olt {value_type(dtype, lanes)} {size}, {whole}", "c")
        return self._select(small, signed, value, dtype, lanes)

    def _moved(
        self, predicate: str, result: str, bound: str, by: str, dtype: DType, lanes: int
    ) -> str:
        """``result``, corrected by one if it is on the wrong side of ``bound``."""
        type_ = value_type(dtype, lanes)
        wrong = self._code.emit(f"fcmp {predicate} {type_} {result}, {bound}", "c")
        other = self._binary(by, result, constant(1, dtype, lanes), dtype, lanes)
        return self._select(wrong, other, result, dtype, lanes)

    def _binary(self, name: str, a: str, b: str, dtype: DType, lanes: int) -> str:
        return self._code.emit(f"{name} {value_type(dtype, lanes)} {a}, {b}")

    def _select(self, condition: str, then: str, other: str, dtype: DType, lanes: int) -> str:
        type_, masks = value_type(dtype, lanes), value_type(BOOL, lanes)
        return self._code.emit(f"select {masks} {condition}, {type_} {then}, {type_} {other}")

    def _intrinsic(self, name: str, args: tuple[str, ...], dtype: DType, lanes: int) -> str:
        type_ = value_type(dtype, lanes)
        full = f"llvm.{name}.{mangled(scalar_type(dtype), lanes)}"
        callee = self._code.intrinsic(type_, full, ", ".join([type_] * len(args)))
        return self._code.emit(f"call {callee}({', '.join(f'{type_} {a}' for a in args)})")
