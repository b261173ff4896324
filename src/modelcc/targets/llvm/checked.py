"""Conditions on sizes that come from data, which overflow cannot make true."""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.condition import Comparison, Condition
from modelcc.ir.index import Sym
from modelcc.ir.index_checked import LEAST, MOST, compute
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.indices import IndexCode, floored

PREDICATES: Mapping[Comparison, str] = {
    "<": "slt", "<=": "sle", "==": "eq", "!=": "ne", ">": "sgt", ">=": "sge",
}  # fmt: skip


class CheckedCode:
    """Emits one condition; ``index`` maps symbols to operands."""

    def __init__(self, code: Code, index: IndexCode) -> None:
        self._code = code
        self._index = index
        self._faults: list[str] = []
        self._results: dict[tuple[str, str, str], str] = {}

    def holds(self, condition: Condition) -> str:
        """An i1: ``condition`` holds, and neither side overflows 64 bits."""
        left, right = compute(condition.left, self), compute(condition.right, self)
        predicate = PREDICATES[condition.comparison]
        result = self._code.emit(f"icmp {predicate} i64 {left}, {right}", "holds")
        for fault in self._faults:
            sound = self._code.emit(f"xor i1 {fault}, true", "fits")
            result = self._code.emit(f"and i1 {result}, {sound}", "holds")
        return result

    def number(self, value: int) -> str:
        if LEAST <= value <= MOST:
            return str(value)
        self._faults.append("true")
        return "0"

    def symbol(self, e: Sym) -> str:
        return self._index.operand(e)

    def step(self, operation: str, left: str, right: str) -> str:
        key = operation, left, right
        if key not in self._results:
            self._results[key] = self._step(*key)
        return self._results[key]

    def _step(self, operation: str, left: str, right: str) -> str:
        match operation:
            case "divisor":
                return self._divisor(left, right)
            case "floordiv" | "mod":
                return floored(self._code, left, right, remainder=operation == "mod")
            case "min" | "max":
                callee = self._code.intrinsic("i64", f"llvm.s{operation}.i64", "i64, i64")
                return self._code.emit(f"call {callee}(i64 {left}, i64 {right})", "i")
            case _:
                return self._combined(f"llvm.s{operation}.with.overflow.i64", left, right)

    def _combined(self, name: str, left: str, right: str) -> str:
        callee = self._code.intrinsic("{ i64, i1 }", name, "i64, i64")
        both = self._code.emit(f"call {callee}(i64 {left}, i64 {right})", "both")
        self._faults.append(self._code.emit(f"extractvalue {{ i64, i1 }} {both}, 1", "over"))
        return self._code.emit(f"extractvalue {{ i64, i1 }} {both}, 0", "i")

    def _divisor(self, left: str, right: str) -> str:
        emit = self._code.emit
        none = emit(f"icmp eq i64 {right}, 0", "none")
        # The minimum divided by -1 is the one quotient that overflows.
        least = emit(f"icmp eq i64 {left}, {LEAST}", "least")
        minus = emit(f"icmp eq i64 {right}, -1", "minus")
        over = emit(f"and i1 {least}, {minus}", "over")
        fault = emit(f"or i1 {none}, {over}", "fault")
        self._faults.append(fault)
        return emit(f"select i1 {fault}, i64 1, i64 {right}", "i")
