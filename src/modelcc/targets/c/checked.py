"""Conditions on sizes that come from data, computed so that overflow cannot make them hold."""

from __future__ import annotations

from modelcc.ir.condition import Condition
from modelcc.ir.index import Atom, FloorDiv, FloorMod, Index, IndexMax, IndexMin, Sym
from modelcc.ir.index_checked import LEAST, MOST
from modelcc.targets.c.code import Code
from modelcc.targets.c.indices import IndexCode
from modelcc.targets.c.prelude import Prelude


class CheckedCode:
    """Prints conditions; ``index`` knows how symbols are spelled."""

    def __init__(self, code: Code, prelude: Prelude, index: IndexCode) -> None:
        self._code = code
        self._prelude = prelude
        self._index = index
        self._bad = ""

    def require(self, condition: Condition, status: int) -> None:
        """Return ``status`` unless ``condition`` holds and both sides fit into 64 bits."""
        sides = condition.left, condition.right
        if not all(isinstance(e, Sym) or _fits(e) for e in sides):
            with self._code.block(""):
                self._bad = self._code.fresh("bad")
                self._code.line(f"bool {self._bad} = false;")
                left, right = (self._code.fresh(name) for name in ("left", "right"))
                for name, side in zip((left, right), sides, strict=True):
                    self._code.line(f"const int64_t {name} = {self._text(side)};")
                test = f"{self._bad} || !({left} {condition.comparison} {right})"
                self._code.line(f"if ({test}) return {status};")
            return
        left, right = map(self._index.inner, sides)
        self._code.line(f"if (!({left} {condition.comparison} {right})) return {status};")

    def _text(self, e: Index) -> str:
        if isinstance(e, int):
            return self._number(e)
        if isinstance(e, Sym):
            return self._index.text(e)
        if isinstance(e, Atom):
            return self._atom(e)
        total = self._number(e.const) if e.const else ""
        for coeff, mono in e.terms.values():
            part = self._number(coeff) if coeff != 1 else ""
            for atom in mono:
                text = self._text(atom)
                part = self._call("mcc_mul", part, text) if part else text
            total = self._call("mcc_add", total, part) if total else part
        return total

    def _number(self, value: int) -> str:
        if not _fits(value):
            return f"({self._bad} = true, (int64_t)0)"
        return "INT64_MIN" if value == LEAST else f"INT64_C({value})"

    def _call(self, name: str, left: str, right: str) -> str:
        return f"{self._prelude.checked(name)}({left}, {right}, &{self._bad})"

    def _atom(self, e: Atom) -> str:
        match e:
            case FloorDiv(dividend, divisor) | FloorMod(dividend, divisor):
                name = "mcc_floordiv" if isinstance(e, FloorDiv) else "mcc_mod"
                left, right = self._text(dividend), self._text(divisor)
                if not isinstance(divisor, int):
                    right = self._call("mcc_divisor", left, right)
                return f"{self._prelude.index(name)}({left}, {right})"
            case IndexMin(args) | IndexMax(args):
                name = self._prelude.index("mcc_min" if isinstance(e, IndexMin) else "mcc_max")
                first, *rest = map(self._text, args)
                for text in rest:
                    first = f"{name}({first}, {text})"
                return first
            case _:
                raise TypeError(f"index atom {e} has no C form")


def _fits(e: Index) -> bool:
    return isinstance(e, int) and LEAST <= e <= MOST
