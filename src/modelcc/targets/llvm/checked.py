"""Conditions on sizes that come from data, computed so that overflow cannot make them hold."""

from __future__ import annotations

from collections.abc import Mapping

from modelcc.ir.condition import Comparison, Condition
from modelcc.ir.index import Atom, FloorDiv, FloorMod, Index, IndexMax, IndexMin, Sym
from modelcc.ir.index_checked import LEAST, MOST
from modelcc.targets.llvm.code import Code
from modelcc.targets.llvm.indices import IndexCode, floored

PREDICATES: Mapping[Comparison, str] = {
    "<": "slt", "<=": "sle", "==": "eq", "!=": "ne", ">": "sgt", ">=": "sge",
}  # fmt: skip


class CheckedCode:
    """Emits one condition; ``index`` knows what symbols stand for."""

    def __init__(self, code: Code, index: IndexCode) -> None:
        self._code = code
        self._index = index
        self._faults: list[str] = []
        self._known: dict[str, str] = {}

    def holds(self, condition: Condition) -> str:
        """An i1: ``condition`` holds, and no step towards either side left 64 bits."""
        left, right = self._operand(condition.left), self._operand(condition.right)
        predicate = PREDICATES[condition.comparison]
        result = self._code.emit(f"icmp {predicate} i64 {left}, {right}", "holds")
        for fault in self._faults:
            sound = self._code.emit(f"xor i1 {fault}, true", "fits")
            result = self._code.emit(f"and i1 {result}, {sound}", "holds")
        return result

    def _operand(self, e: Index) -> str:
        if isinstance(e, int):
            return self._number(e)
        if isinstance(e, Sym):
            return self._index.operand(e)
        if e.text not in self._known:
            self._known[e.text] = self._atom(e) if isinstance(e, Atom) else self._sum(e)
        return self._known[e.text]

    def _number(self, value: int) -> str:
        if LEAST <= value <= MOST:
            return str(value)
        self._faults.append("true")
        return "0"

    def _sum(self, e: Index) -> str:
        assert not isinstance(e, int)
        total = self._number(e.const)
        for coeff, mono in e.terms.values():
            part = self._number(coeff)
            for atom in mono:
                part = self._combined("smul", part, self._operand(atom))
            total = self._combined("sadd", total, part)
        return total

    def _combined(self, function: str, left: str, right: str) -> str:
        if (function, left) in (("smul", "1"), ("sadd", "0")):
            return right
        name = f"llvm.{function}.with.overflow.i64"
        callee = self._code.intrinsic("{ i64, i1 }", name, "i64, i64")
        both = self._code.emit(f"call {callee}(i64 {left}, i64 {right})", "both")
        self._faults.append(self._code.emit(f"extractvalue {{ i64, i1 }} {both}, 1", "over"))
        return self._code.emit(f"extractvalue {{ i64, i1 }} {both}, 0", "i")

    def _atom(self, e: Atom) -> str:
        match e:
            case FloorDiv(dividend, divisor):
                return self._division(dividend, divisor, remainder=False)
            case FloorMod(dividend, divisor):
                return self._division(dividend, divisor, remainder=True)
            case IndexMin() | IndexMax():
                name = "llvm.smin.i64" if isinstance(e, IndexMin) else "llvm.smax.i64"
                callee = self._code.intrinsic("i64", name, "i64, i64")
                result = self._operand(e.args[0])
                for arg in e.args[1:]:
                    other = self._operand(arg)
                    result = self._code.emit(f"call {callee}(i64 {result}, i64 {other})", "i")
                return result
            case _:
                raise TypeError(f"index atom {e} has no LLVM form")

    def _division(self, a: Index, b: Index, remainder: bool) -> str:
        left, right = self._operand(a), self._operand(b)
        emit = self._code.emit
        if not isinstance(b, int):
            none = emit(f"icmp eq i64 {right}, 0", "none")
            # The least number divided by -1 is the one quotient that does not fit.
            least = emit(f"icmp eq i64 {left}, {LEAST}", "least")
            minus = emit(f"icmp eq i64 {right}, -1", "minus")
            over = emit(f"and i1 {least}, {minus}", "over")
            fault = emit(f"or i1 {none}, {over}", "fault")
            self._faults.append(fault)
            right = emit(f"select i1 {fault}, i64 1, i64 {right}", "i")
        return floored(self._code, left, right, remainder)
