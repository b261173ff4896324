"""Sizes that come from data or callers, computed with overflow detection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from modelcc.ir.condition import Condition
from modelcc.ir.index import Index, Sym
from modelcc.ir.index_checked import LEAST, MOST, compute
from modelcc.targets.c.code import Code
from modelcc.targets.c.indices import IndexCode
from modelcc.targets.c.prelude import Prelude


@dataclass(frozen=True)
class CheckedText:
    """Prints sizes; overflow of 64 bits sets the variable ``bad``."""

    prelude: Prelude
    spell: Callable[[Sym], str]
    bad: str = "bad"

    def of(self, e: Index) -> str:
        """An ``int64_t`` with the value of ``e``."""
        return compute(e, self)

    def number(self, value: int) -> str:
        if not _fits(value):
            return f"({self.bad} = true, (int64_t)0)"
        return "INT64_MIN" if value == LEAST else f"INT64_C({value})"

    def symbol(self, e: Sym) -> str:
        return self.spell(e)

    def step(self, operation: str, left: str, right: str) -> str:
        name = f"mcc_{operation}"
        if operation in ("add", "mul", "divisor"):
            return f"{self.prelude.checked(name)}({left}, {right}, &{self.bad})"
        return f"{self.prelude.index(name)}({left}, {right})"


def require(
    code: Code, prelude: Prelude, index: IndexCode, condition: Condition, status: int
) -> None:
    """Return ``status`` unless ``condition`` holds and both sides fit into 64 bits."""
    sides = condition.left, condition.right
    if all(isinstance(e, Sym) or _fits(e) for e in sides):
        left, right = map(index.inner, sides)
        code.line(f"if (!({left} {condition.comparison} {right})) return {status};")
        return
    with code.block(""):
        checked = CheckedText(prelude, index.text, code.fresh("bad"))
        code.line(f"bool {checked.bad} = false;")
        left, right = (code.fresh(name) for name in ("left", "right"))
        for name, side in zip((left, right), sides, strict=True):
            code.line(f"const int64_t {name} = {checked.of(side)};")
        test = f"{checked.bad} || !({left} {condition.comparison} {right})"
        code.line(f"if ({test}) return {status};")


def _fits(e: Index) -> bool:
    return isinstance(e, int) and LEAST <= e <= MOST
