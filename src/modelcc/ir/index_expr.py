"""Canonical symbolic integers: polynomials over symbols, quotients, remainders, min and max.

A non-constant value is an :class:`Expr`, a constant always a plain ``int``. An ``Expr`` maps the
text of each monomial to its coefficient and its factors, so that equal expressions have equal
text; that text is also their identity for hashing and comparing. Rewrites made here hold for
*every* value of the symbols (for which no divisor is zero); those that need bounds are in
:mod:`modelcc.ir.index_simplify`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from math import gcd
from sys import intern
from typing import ClassVar, Final, SupportsIndex, TypeAlias

from modelcc.ir.index_names import quote_name
from modelcc.ir.index_poly import (
    divide_monomial,
    leading,
    merge,
    monomial_text,
    multiply,
    scale,
    shared_factors,
    sum_text,
)

Monomial: TypeAlias = "tuple[Atom, ...]"
Terms: TypeAlias = "dict[str, tuple[int, Monomial]]"


class Expr:
    """An immutable integer expression that is not constant; built by operators, not directly.

    ``terms`` maps the text of a monomial to ``(coefficient, factors)``; ``const`` is the rest.
    ``+ - * // %`` take an ``int`` or an ``Expr`` on either side and follow Python's floor
    semantics; the result is an ``int`` where everything cancels. ``==`` compares canonical forms;
    to compare values, use :func:`modelcc.ir.index.compare`.
    """

    __slots__ = ("_symbols", "_text", "const", "terms")

    terms: Terms
    const: int
    _text: str
    _symbols: frozenset[str] | None

    def __init__(self, terms: Terms, const: int) -> None:
        self.terms = terms
        self.const = const
        self._text = ""
        self._symbols = None

    @property
    def text(self) -> str:
        """The canonical spelling; ``parse_index`` reads it back."""
        if not self._text:
            self._text = sum_text(self.terms, self.const)
        return self._text

    @property
    def symbols(self) -> frozenset[str]:
        """Names of all symbols in it, those inside quotients, remainders, min and max too."""
        if self._symbols is None:
            atoms = {atom.text: atom for _, mono in self.terms.values() for atom in mono}
            self._symbols = frozenset[str]().union(*(a.atom_symbols() for a in atoms.values()))
        return self._symbols

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Index({self.text})"

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return (
            isinstance(other, Expr)
            and self.const == other.const
            and len(self.terms) == len(other.terms)
            and self.text == other.text
        )

    def __add__(self, other: Index) -> Index:
        if type(other) is int:
            return build(self.terms, self.const + other) if other else self
        if isinstance(other, Expr):
            return build(merge(self.terms, other.terms, 1), self.const + other.const)
        value = _coerce(other)
        return NotImplemented if value is None else self + value

    __radd__ = __add__

    def __sub__(self, other: Index) -> Index:
        if type(other) is int:
            return build(self.terms, self.const - other) if other else self
        if isinstance(other, Expr):
            return build(merge(self.terms, other.terms, -1), self.const - other.const)
        value = _coerce(other)
        return NotImplemented if value is None else self - value

    def __rsub__(self, other: int) -> Index:
        value = _coerce(other)
        return NotImplemented if value is None else -self + value

    def __neg__(self) -> Index:
        return build(scale(self.terms, -1), -self.const)

    def __pos__(self) -> Index:
        return self

    def __mul__(self, other: Index) -> Index:
        if type(other) is int:
            if other == 1:
                return self
            return build(scale(self.terms, other), self.const * other) if other else 0
        if isinstance(other, Expr):
            return _multiply(self, other)
        value = _coerce(other)
        return NotImplemented if value is None else self * value

    __rmul__ = __mul__

    def __floordiv__(self, other: Index) -> Index:
        value = other if type(other) is int else _coerce(other)
        return NotImplemented if value is None else floordiv(self, value)

    def __rfloordiv__(self, other: int) -> Index:
        value = _coerce(other)
        return NotImplemented if value is None else floordiv(value, self)

    def __mod__(self, other: Index) -> Index:
        value = other if type(other) is int else _coerce(other)
        return NotImplemented if value is None else mod(self, value)

    def __rmod__(self, other: int) -> Index:
        value = _coerce(other)
        return NotImplemented if value is None else mod(value, self)


Index: TypeAlias = int | Expr


class Atom(Expr):
    """An opaque factor of polynomials; ``factor`` is its text as an operand of a product."""

    __slots__ = ("factor",)
    __match_args__: tuple[str, ...] = ()

    factor: Final[str]

    def __init__(self, text: str, factor: str) -> None:  # pyright: ignore[reportMissingSuperCall]
        self.const = 0
        self._text, self._symbols = text, None
        self.factor = factor

    @property
    def terms(self) -> Terms:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Itself, once; not stored, since reference cycles are not freed immediately."""
        return {self._text: (1, (self,))}

    def __reduce__(self) -> tuple[type[Atom], tuple[object, ...]]:
        return type(self), tuple(getattr(self, name) for name in self.__match_args__)

    def operands(self) -> tuple[Index, ...]:
        """The expressions it is made of; none for a symbol."""
        return ()

    def atom_symbols(self) -> frozenset[str]:
        """Names of the symbols in its operands."""
        if self._symbols is None:
            self._symbols = frozenset[str]().union(*(symbols(e) for e in self.operands()))
        return self._symbols


class Sym(Atom):
    """A named integer: a dimension, a loop variable, an axis position. Equal by name."""

    __slots__ = ("name",)
    __match_args__ = ("name",)

    name: Final[str]

    def __init__(self, name: str) -> None:
        text = intern(quote_name(name))
        super().__init__(text, text)
        self.name = name
        self._symbols = frozenset((name,))


class Division(Atom):
    """A quotient or remainder for which no cheaper form is known."""

    __slots__ = ("dividend", "divisor")
    __match_args__ = ("dividend", "divisor")

    word: ClassVar[str]
    dividend: Final[Index]
    divisor: Final[Index]

    def __init__(self, dividend: Index, divisor: Index) -> None:
        text = f"{_operand(dividend)} {self.word} {_operand(divisor)}"
        super().__init__(text, f"({text})")
        self.dividend = dividend
        self.divisor = divisor

    def operands(self) -> tuple[Index, ...]:
        return (self.dividend, self.divisor)


class FloorDiv(Division):
    """``dividend // divisor``; use :func:`floordiv` to build."""

    __slots__ = ()
    word = "floordiv"


class FloorMod(Division):
    """``dividend % divisor``; use :func:`mod` to build."""

    __slots__ = ()
    word = "mod"


# --- text ------------------------------------------------------------------------------------


def _operand(e: Index) -> str:
    if isinstance(e, Atom):
        return e.factor
    return str(e) if isinstance(e, int) and e >= 0 else f"({e})"


# --- polynomials -----------------------------------------------------------------------------


def symbols(e: Index) -> frozenset[str]:
    """Names of all symbols in ``e``."""
    return frozenset() if isinstance(e, int) else e.symbols


def build(terms: Terms, const: int) -> Index:
    """The canonical value of a sum of terms, whose coefficients are not zero."""
    if not terms:
        return const
    if const == 0 and len(terms) == 1:
        ((coeff, mono),) = terms.values()
        if coeff == 1 and len(mono) == 1:
            return mono[0]
    return Expr(terms, const)


def term(coeff: int, mono: Monomial) -> Index:
    """``coeff`` times the product of ``mono``, whose factors are in canonical order."""
    if not mono or not coeff:
        return coeff
    return build({monomial_text(mono): (coeff, mono)}, 0)


def _coerce(value: object) -> Index | None:
    """An index from an Expr or anything integral (NumPy scalars, bool); None for the rest."""
    if type(value) is int or isinstance(value, Expr):
        return value
    if not isinstance(value, SupportsIndex):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _multiply(a: Expr, b: Expr) -> Index:
    terms = multiply(a.terms, b.terms)
    if b.const:
        terms = merge(terms, scale(a.terms, b.const), 1)
    if a.const:
        terms = merge(terms, scale(b.terms, a.const), 1)
    return build(terms, a.const * b.const)


def product(items: Iterable[Index]) -> Index:
    """The product of all items; 1 for none."""
    result: Index = 1
    for item in items:
        result = result * item
    return result


# --- division of polynomials -----------------------------------------------------------------


def divide_terms(e: Index, coeff: int, mono: Monomial, exact: bool) -> tuple[Index, Index]:
    """``(q, r)`` with ``e == q*coeff*mono + r``, dividing term by term; ``coeff > 0``.

    Coefficients that do not divide are split towards zero, or left in ``r`` if ``exact``.
    """
    if not mono:
        raise ValueError("divide_terms needs a monomial; divide by an int with floordiv")
    quotient: Index = 0
    rest = e
    if isinstance(e, int):
        return 0, e
    for own, factors in e.terms.values():
        left = divide_monomial(factors, mono)
        if left is None or (exact and own % coeff):
            continue
        times = own // coeff if own >= 0 else -(-own // coeff)
        if times:
            quotient = quotient + term(times, left)
            rest = rest - term(times * coeff, factors)
    return quotient, rest


def divide(a: Index, b: Expr) -> tuple[Index, Index]:
    """``(q, r)`` with ``a == q*b + r`` by polynomial division; b's leading coefficient is > 0."""
    coeff, mono = leading(b.terms)
    if len(b.terms) == 1 and not b.const:
        return divide_terms(a, coeff, mono, exact=False)
    quotient: Index = 0
    while True:
        step, _ = divide_terms(a, coeff, mono, exact=True)
        if step == 0:
            return quotient, a
        quotient, a = quotient + step, a - step * b


def common_factor(*items: Index) -> tuple[int, Monomial]:
    """The greatest common integer and monomial factor of all items that are not zero."""
    content = 0
    shared: Monomial | None = None
    for e in items:
        if isinstance(e, int) or e.const:
            shared = () if e else shared
            content = gcd(content, e if isinstance(e, int) else e.const)
        if isinstance(e, int):
            continue
        for coeff, mono in e.terms.values():
            content = gcd(content, coeff)
            shared = mono if shared is None else shared_factors(shared, mono)
    return content, shared or ()


def cancel(e: Index, content: int, mono: Monomial) -> Index:
    """``e`` divided by a factor that divides each of its terms."""
    if isinstance(e, int):
        return e // content
    if content == 1 and not mono:
        return e
    result: Index = e.const // content
    for coeff, factors in e.terms.values():
        result = result + term(coeff // content, divide_monomial(factors, mono) or ())
    return result


# --- floor division and remainder ------------------------------------------------------------


def floordiv(a: Index, b: Index) -> Index:
    """``a // b`` rounded down; ZeroDivisionError if ``b`` is the constant 0."""
    if isinstance(b, Expr):
        return _floordiv_symbolic(a, b)
    if isinstance(a, int):
        return a // b
    if b <= 0:
        if b == 0:
            raise ZeroDivisionError(f"({a}) floordiv 0")
        return _floordiv_constant(-a, -b)
    return a if b == 1 else _floordiv_constant(a, b)


def mod(a: Index, b: Index) -> Index:
    """``a - b * (a // b)``, with the sign of ``b``; ZeroDivisionError if ``b`` is 0."""
    if isinstance(b, Expr):
        return _mod_symbolic(a, b)
    if isinstance(a, int):
        return a % b
    if b <= 0:
        if b == 0:
            raise ZeroDivisionError(f"({a}) mod 0")
        return -mod(-a, -b)
    return _mod_constant(a, b)


def ceildiv(a: Index, b: Index) -> Index:
    """``a / b`` rounded up, for ``b > 0``."""
    return floordiv(a + b - 1, b)


def _floordiv_constant(a: Index, c: int) -> Index:
    """For c > 0: whole multiples of c leave the quotient, the rest is divided by its content."""
    if isinstance(a, int):
        return a // c
    if c == 1:
        return a
    whole: Terms = {}
    rest: Terms = {}
    content = c
    for key, (coeff, mono) in a.terms.items():
        left = coeff % c if coeff >= 0 else -(-coeff % c)
        if left != coeff:
            whole[key] = ((coeff - left) // c, mono)
        if left:
            rest[key] = (left, mono)
            content = gcd(content, left)
    times, const = divmod(a.const, c)
    if not rest:
        return build(whole, times)
    if content > 1:
        rest = {key: (coeff // content, mono) for key, (coeff, mono) in rest.items()}
        const //= content
    quotient = _floordiv_reduced(rest, const, c // content)
    return quotient if not whole and not times else build(whole, times) + quotient


def _floordiv_reduced(rest: Terms, const: int, c: int) -> Index:
    """The quotient when 0 <= const < c, |coefficients| < c and nothing cancels."""
    if all([coeff < 0 for coeff, _ in rest.values()]):
        # floor(-y / c) == -ceil(y / c), so that -(-n // c) and ceildiv(n, c) are the same.
        return -_floordiv_reduced(scale(rest, -1), c - 1 - const, c)
    if len(rest) == 1:
        ((coeff, mono),) = rest.values()
        inner = mono[0]
        if coeff == 1 and len(mono) == 1:
            if isinstance(inner, FloorDiv):
                return floordiv(inner.dividend + const * inner.divisor, inner.divisor * c)
            if isinstance(inner, FloorMod) and isinstance(inner.divisor, int):
                times, left = divmod(inner.divisor, c)
                if left == 0 and const == 0:
                    return mod(floordiv(inner.dividend, c), times)
    return FloorDiv(build(rest, const), c)


def _expand_remainders(a: Index, b: Index) -> Index:
    """``a`` with every ``k * (x mod m)`` whose ``k*m`` is a multiple of b replaced by ``k*x``."""
    if isinstance(a, int):
        return a
    for coeff, mono in a.terms.values():
        inner = mono[0]
        if len(mono) == 1 and isinstance(inner, FloorMod):
            multiple = inner.divisor * coeff
            if isinstance(multiple, int) and isinstance(b, Expr):
                continue
            if mod(multiple, b) == 0:
                return _expand_remainders(a - inner * coeff + inner.dividend * coeff, b)
    return a


def _mod_constant(a: Expr, c: int) -> Index:
    """For c > 0: whole multiples of c are dropped, the content of the rest is taken out."""
    expanded = _expand_remainders(a, c)
    if isinstance(expanded, int):
        return expanded % c
    rest: Terms = {}
    content = c
    for key, (coeff, mono) in expanded.terms.items():
        left = coeff % c if coeff >= 0 else -(-coeff % c)
        if left:
            rest[key] = (left, mono)
            content = gcd(content, left)
    const = expanded.const % c
    if not rest:
        return const
    if content == 1:
        return FloorMod(build(rest, const), c)
    rest = {key: (coeff // content, mono) for key, (coeff, mono) in rest.items()}
    return content * FloorMod(build(rest, const // content), c // content) + const % content


def _floordiv_symbolic(a: Index, b: Expr) -> Index:
    if leading(b.terms)[0] < 0:
        return floordiv(-a, -b)
    quotient, rest = divide(a, b)
    if rest == 0:
        return quotient
    factor = common_factor(rest, b)
    rest, divisor = cancel(rest, *factor), cancel(b, *factor)
    inner = floordiv(rest, divisor) if isinstance(divisor, int) else FloorDiv(rest, divisor)
    return quotient + inner


def _mod_symbolic(a: Index, b: Expr) -> Index:
    if leading(b.terms)[0] < 0:
        return -mod(-a, -b)
    _, rest = divide(_expand_remainders(a, b), b)
    if rest == 0:
        return 0
    factor = common_factor(rest, b)
    rest, divisor = cancel(rest, *factor), cancel(b, *factor)
    inner = mod(rest, divisor) if isinstance(divisor, int) else FloorMod(rest, divisor)
    return term(*factor) * inner
