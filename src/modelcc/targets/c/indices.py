"""Index expressions as ``int64_t`` arithmetic; quotients are rounded down."""

from __future__ import annotations

from typing import Protocol

from modelcc.ir.index import (
    Atom,
    FloorDiv,
    FloorMod,
    Index,
    IndexMax,
    IndexMin,
    Sym,
    bounds_of,
    product,
)
from modelcc.targets.c.code import Code


class IndexFunctions(Protocol):
    """The functions for ``mcc_floordiv``, ``mcc_mod``, ``mcc_min`` and ``mcc_max``."""

    def index(self, name: str) -> str:
        """The function's name, with its definition emitted."""
        ...


class IndexCode:
    """Prints index expressions with the names visible in ``code``."""

    def __init__(self, code: Code, prelude: IndexFunctions) -> None:
        self._code = code
        self._prelude = prelude

    def text(self, e: Index) -> str:
        """The expression; sums and products are not parenthesised."""
        if isinstance(e, int):
            return str(e)
        if isinstance(e, Sym):
            return self._code.symbol(e.name)
        if isinstance(e, Atom):
            return self._atom(e)[0]
        parts = [self._term(coeff, product(mono)) for coeff, mono in e.terms.values()]
        parts += [f"{e.const:+d}"] if e.const else []
        parts.sort(key=lambda part: part.startswith("-"))  # positive terms first
        first, *rest = parts
        return first.removeprefix("+") + "".join(f" {p[0]} {p[1:]}" for p in rest)

    def inner(self, e: Index) -> str:
        """The expression as an operand of another one."""
        if isinstance(e, Atom) and not isinstance(e, Sym):
            text, atomic = self._atom(e)
            return text if atomic else f"({text})"
        text = self.text(e)
        return text if isinstance(e, Sym) or (isinstance(e, int) and e >= 0) else f"({text})"

    def at_least(self, e: Index, low: int) -> bool:
        """Whether ``e >= low`` is provable."""
        found = bounds_of(e, self._code.bounds()).lo
        return found is not None and found >= low

    def _term(self, coeff: int, mono: Index) -> str:
        """A term with a leading sign."""
        factors = [mono]
        if not isinstance(mono, int) and not isinstance(mono, Atom):
            ((_, atoms),) = mono.terms.values()
            factors = list(atoms)
        sign = "-" if coeff < 0 else "+"
        if len(factors) == 1 and abs(coeff) == 1:
            return sign + self.text(factors[0])
        text = " * ".join(self.inner(f) for f in factors)
        return sign + (text if abs(coeff) == 1 else f"{abs(coeff)} * {text}")

    def _atom(self, e: Atom) -> tuple[str, bool]:
        """An atom other than a symbol, and whether it needs no parentheses as an operand."""
        match e:
            case FloorDiv(dividend, divisor):
                return self._division(dividend, divisor, "/", "mcc_floordiv")
            case FloorMod(dividend, divisor):
                return self._division(dividend, divisor, "%", "mcc_mod")
            case IndexMin() | IndexMax():
                name = self._prelude.index("mcc_min" if isinstance(e, IndexMin) else "mcc_max")
                result = self.text(e.args[0])
                for arg in e.args[1:]:
                    result = f"{name}({result}, {self.text(arg)})"
                return result, True
            case _:
                raise TypeError(f"index atom {e} has no C form")

    def _division(self, a: Index, b: Index, operator: str, function: str) -> tuple[str, bool]:
        if self.at_least(a, 0) and self.at_least(b, 0):
            return f"{self.inner(a)} {operator} {self.inner(b)}", False
        return f"{self._prelude.index(function)}({self.text(a)}, {self.text(b)})", True
