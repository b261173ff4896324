"""Index expressions as i64 arithmetic, at their uses; LLVM hoists loop invariants."""

from __future__ import annotations

from math import gcd

from modelcc.ir.index import (
    Atom,
    Bounds,
    Expr,
    FloorDiv,
    FloorMod,
    Index,
    IndexMax,
    IndexMin,
    Range,
    Sym,
    bounds_of,
    product,
    substitute,
    symbols,
    total,
)
from modelcc.targets.llvm.code import Code

LONG_SUM = 16
"""Number of terms up to which a sum is emitted term by term."""


class IndexCode:
    """Emits index expressions into ``code``, whose scopes map symbols to operands."""

    def __init__(self, code: Code) -> None:
        self._code = code
        self._longest: tuple[Index, str] | None = None
        self._places: dict[str, int] = {}

    def operand(self, e: Index) -> str:
        """An i64 operand with the value of ``e``."""
        return self._operand(self.resolved(e))

    def resolved(self, e: Index) -> Index:
        """``e`` with the variables of unrolled loops replaced by their values."""
        if isinstance(e, int):
            return e
        known = {
            name: value
            for scope in self._code.scopes
            for name, value in scope.replaced.items()
            if name in e.symbols
        }
        return substitute(e, known) if known else e

    def bounds(self) -> Bounds:
        """Bounds of the visible symbols by the enclosing loops."""
        merged: dict[str, Range] = {}
        for scope in self._code.scopes:
            merged.update(scope.bounds)
        return merged

    def at_least(self, e: Index, low: int) -> bool:
        """Whether ``e >= low`` is provable."""
        found = bounds_of(self.resolved(e), self.bounds()).lo
        return found is not None and found >= low

    def divisor(self, e: Index) -> int:
        """A number that divides every value of ``e``; 0 if ``e`` is 0."""
        e = self.resolved(e)
        if isinstance(e, int):
            return abs(e)
        result = e.const
        for coeff, mono in e.terms.values():
            multiples = (self._multiple(atom) for atom in mono)
            part = product(multiples)
            result = gcd(result, coeff * (part if isinstance(part, int) else 1))
        return result

    def bind(self, symbol: str, operand: str) -> None:
        """Binds ``symbol`` to an i64 operand in the innermost scope."""
        self._code.scope.symbols[symbol] = operand

    def _multiple(self, atom: Atom) -> int:
        if not isinstance(atom, Sym):
            return 1
        for scope in reversed(self._code.scopes):
            if atom.name in scope.symbols:
                return scope.multiples.get(atom.name, 1)
        return 1

    def _operand(self, e: Index) -> str:
        if isinstance(e, int):
            return str(e)
        if isinstance(e, Sym):
            return self._symbol(e.name)
        found = self._code.cached(f"index {e.text}")
        if found is not None:
            return found
        if isinstance(e, Atom):
            result = self._atom(e)
        elif len(e.terms) == 1 and e.const == 0:
            result = self._product(e)
        else:
            result = self._sum(e)
        self._code.scope.cache[f"index {e.text}"] = result
        return result

    def _symbol(self, name: str) -> str:
        for scope in reversed(self._code.scopes):
            operand = scope.symbols.get(name)
            if operand is not None:
                return operand
        raise KeyError(f"index symbol '{name}' is not bound here")

    def _sum(self, e: Expr) -> str:
        if e.const:
            return self._add(self._operand(e - e.const), e.const)
        if len(e.terms) > LONG_SUM:
            return self._long_sum(e)
        _, (coeff, mono) = max(
            e.terms.items(), key=lambda item: (item[1][0] < 0, len(item[1][1]), item[0])
        )
        term = coeff * product(mono)
        return self._add(self._operand(e - term), term)

    def _long_sum(self, e: Expr) -> str:
        """The previous long sum plus the difference, if that is short: offsets of a concatenation
        are sums of d0 to dn, for consecutive n."""
        if len(self._code.scopes) > 1:
            return self._sum_by_parts(e)
        rest = e if self._longest is None else e - self._longest[0]
        if self._longest is None or _terms(rest) > LONG_SUM:
            result = self._sum_by_parts(e)
        else:
            result = self._add(self._longest[1], rest)
        self._longest = e, result
        return result

    def _sum_by_parts(self, e: Expr) -> str:
        """Terms in the order in which their symbols were bound, split at powers of two: other sums
        starting with the same symbols share the partial sums."""
        outer = self._code.scopes[0].symbols
        if len(outer) != len(self._places):
            self._places = {name: n for n, name in enumerate(outer)}
        places, last = self._places, len(outer)

        def key(term: Index) -> tuple[int, str]:
            return min((places.get(name, last) for name in symbols(term)), default=0), str(term)

        terms = sorted((coeff * product(mono) for coeff, mono in e.terms.values()), key=key)
        return self._sum_of(terms)

    def _sum_of(self, terms: list[Index]) -> str:
        if len(terms) <= LONG_SUM:
            return self._operand(total(terms))
        text = f"terms {' '.join(map(str, terms))}"
        found = self._code.cached(text)
        if found is not None:
            return found
        half = 1 << (len(terms) - 1).bit_length() - 1
        left, right = self._sum_of(terms[:half]), self._sum_of(terms[half:])
        result = self._code.emit(f"add nsw i64 {left}, {right}", "i")
        self._code.scope.cache[text] = result
        return result

    def _add(self, left: str, right: Index) -> str:
        if str(right).startswith("-"):
            return self._code.emit(f"sub nsw i64 {left}, {self._operand(-right)}", "i")
        return self._code.emit(f"add nsw i64 {left}, {self._operand(right)}", "i")

    def _product(self, e: Expr) -> str:
        ((coeff, mono),) = e.terms.values()
        if coeff != 1:
            value = self._operand(product(mono))
            return self._code.emit(f"mul nsw i64 {value}, {coeff}", "i")
        left, right = self._operand(product(mono[:-1])), self._operand(mono[-1])
        return self._code.emit(f"mul nsw i64 {left}, {right}", "i")

    def _atom(self, e: Atom) -> str:
        match e:
            case FloorDiv(dividend, divisor):
                return self._division(dividend, divisor, remainder=False)
            case FloorMod(dividend, divisor):
                return self._division(dividend, divisor, remainder=True)
            case IndexMin() | IndexMax():
                return self._extremum(e)
            case _:
                raise TypeError(f"index atom {e} has no LLVM form")

    def _extremum(self, e: IndexMin | IndexMax) -> str:
        name = "llvm.smin.i64" if isinstance(e, IndexMin) else "llvm.smax.i64"
        callee = self._code.intrinsic("i64", name, "i64, i64")
        result = self._operand(e.args[0])
        for arg in e.args[1:]:
            right = self._operand(arg)
            result = self._code.emit(f"call {callee}(i64 {result}, i64 {right})", "i")
        return result

    def _division(self, a: Index, b: Index, remainder: bool) -> str:
        left, right = self._operand(a), self._operand(b)
        if isinstance(b, int) and b > 0 and b & (b - 1) == 0:
            if remainder:
                return self._code.emit(f"and i64 {left}, {b - 1}", "i")
            return self._code.emit(f"ashr i64 {left}, {b.bit_length() - 1}", "i")
        known = self.bounds()
        lows = bounds_of(a, known).lo, bounds_of(b, known).lo
        if all(low is not None and low >= 0 for low in lows):
            return self._code.emit(f"{'urem' if remainder else 'udiv'} i64 {left}, {right}", "i")
        return floored(self._code, left, right, remainder)


def _terms(e: Index) -> int:
    return len(e.terms) if isinstance(e, Expr) else 1


def floored(code: Code, left: str, right: str, remainder: bool) -> str:
    """Quotient rounded down: truncate, then correct if signs differ and the remainder is not 0."""
    emit = code.emit
    rest = emit(f"srem i64 {left}, {right}", "i")
    signs = emit(f"xor i64 {rest}, {right}", "i")
    differ = emit(f"icmp slt i64 {signs}, 0", "c")
    inexact = emit(f"icmp ne i64 {rest}, 0", "c")
    wrong = emit(f"and i1 {differ}, {inexact}", "c")
    if remainder:
        fixed = emit(f"add i64 {rest}, {right}", "i")
        return emit(f"select i1 {wrong}, i64 {fixed}, i64 {rest}", "i")
    quotient = emit(f"sdiv i64 {left}, {right}", "i")
    fixed = emit(f"add i64 {quotient}, -1", "i")
    return emit(f"select i1 {wrong}, i64 {fixed}, i64 {quotient}", "i")
