"""Index expressions as values: of shapes, starts and counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from modelcc.exporters.onnx.builder import OnnxBuilder, OnnxValue
from modelcc.frontends.kit.errors import unsupported
from modelcc.ir.index import Expr, FloorDiv, FloorMod, Index, IndexMax, IndexMin, Sym
from modelcc.ir.types import I64


class OnnxSizes:
    """Vectors of i64 computed from expressions of named dimensions."""

    def __init__(self, build: OnnxBuilder) -> None:
        self._build = build

    def vector(self, values: Sequence[Index]) -> OnnxValue:
        """All ``values``, concatenated."""
        parts: list[OnnxValue] = []
        run: list[int] = []
        for value in values:
            if isinstance(value, int):
                run.append(value)
                continue
            parts += [self._build.ints(*run)] if run else []
            parts.append(self.one(value))
            run = []
        if run or not parts:
            parts.append(self._build.ints(*run))
        return parts[0] if len(parts) == 1 else self._build.node("Concat", *parts, axis=0)

    def scalar(self, value: Index) -> OnnxValue:
        """A scalar."""
        if isinstance(value, int):
            return self._build.number(value, I64)
        return self._build.node("Squeeze", self.one(value), self._build.ints(0))

    def one(self, value: Index) -> OnnxValue:
        """A vector of one element."""
        if isinstance(value, int):
            return self._build.ints(value)
        # A nested loop may have a counter of the same name.
        key = (value, *(self._symbol(name).name for name in sorted(value.symbols)))
        found = self._build.known.get(key)
        if found is None:
            found = self._build.known[key] = self._expression(value)
        return found

    def _expression(self, e: Expr) -> OnnxValue:
        match e:
            case Sym(name):
                return self._symbol(name)
            case FloorDiv(dividend, divisor):
                # ONNX truncates quotients, but its remainder matches floor division.
                whole = dividend - self._named(FloorMod(dividend, divisor))
                return self._build.node("Div", self.one(whole), self.one(divisor))
            case FloorMod(dividend, divisor):
                return self._build.node("Mod", self.one(dividend), self.one(divisor))
            case IndexMin(args) | IndexMax(args):
                operator = "Min" if isinstance(e, IndexMin) else "Max"
                return self._build.node(operator, *map(self.one, args))
            case _:
                return self._polynomial(e)

    def _named(self, e: Expr) -> Index:
        """A symbol bound to ``e``."""
        name = f".{e}"
        self._build.symbols[name] = self.one(e)
        return Sym(name)

    def _polynomial(self, e: Expr) -> OnnxValue:
        terms = [self._term(coefficient, factors) for coefficient, factors in e.terms.values()]
        if e.const:
            terms.append(self._build.ints(e.const))
        return reduce(lambda a, b: self._build.node("Add", a, b), terms)

    def _term(self, coefficient: int, factors: Sequence[Expr]) -> OnnxValue:
        values = [*map(self.one, factors)]
        if coefficient != 1:
            values.append(self._build.ints(coefficient))
        return reduce(lambda a, b: self._build.node("Mul", a, b), values)

    def _symbol(self, name: str) -> OnnxValue:
        found = self._build.symbols.get(name)
        if found is None:
            unsupported(f"the size {name} is that of no input")
        return found
