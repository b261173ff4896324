"""Sums of integer multiples of monomials, whose factors are identified by their text.

A sum is a dictionary from the text of a monomial to its coefficient (never 0) and its factors,
in the order of their text. The functions do not depend on what a factor stands for.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, TypeVar


class Factor(Protocol):
    """A factor of monomials: ``text`` alone, ``factor`` as operand of a product."""

    @property
    def text(self) -> str: ...

    @property
    def factor(self) -> str: ...


F = TypeVar("F", bound=Factor)
PowerProduct: TypeAlias = tuple[F, ...]
Sum: TypeAlias = dict[str, tuple[int, tuple[F, ...]]]


def factor_text(factor: Factor) -> str:
    """The text by which factors are ordered."""
    return factor.factor


def monomial_text(mono: PowerProduct[F]) -> str:
    """The text of a product with at least one factor."""
    return mono[0].text if len(mono) == 1 else "*".join([atom.factor for atom in mono])


def sum_text(terms: Sum[F], const: int) -> str:
    """The text of ``terms + const``, lower degrees first; at least one term."""
    parts: list[str] = []
    for key, (coeff, mono) in sorted(terms.items(), key=lambda item: (len(item[1][1]), item[0])):
        size = abs(coeff)
        factor = mono[0].factor if len(mono) == 1 and coeff != 1 else key
        body = factor if size == 1 else f"{size}*{factor}"
        parts.append(f"- {body}" if coeff < 0 else f"+ {body}")
    if const:
        parts.append(f"- {-const}" if const < 0 else f"+ {const}")
    text = " ".join(parts)
    return f"-{text[2:]}" if text[0] == "-" else text[2:]


def merge(a: Sum[F], b: Sum[F], sign: int) -> Sum[F]:
    """``a + sign*b``."""
    terms = dict(a)
    for key, (coeff, mono) in b.items():
        old = terms.get(key)
        if old is None:
            terms[key] = (sign * coeff, mono)
        elif total := old[0] + sign * coeff:
            terms[key] = (total, mono)
        else:
            del terms[key]
    return terms


def scale(terms: Sum[F], factor: int) -> Sum[F]:
    """``factor * terms`` for a factor that is not 0."""
    return {key: (coeff * factor, mono) for key, (coeff, mono) in terms.items()}


def multiply(a: Sum[F], b: Sum[F]) -> Sum[F]:
    """``a * b``, multiplied out."""
    terms: Sum[F] = {}
    for coeff_a, mono_a in a.values():
        for coeff_b, mono_b in b.values():
            mono = tuple(sorted(mono_a + mono_b, key=factor_text))
            key = monomial_text(mono)
            old = terms.get(key)
            terms[key] = (coeff_a * coeff_b + (old[0] if old else 0), mono)
    return {key: entry for key, entry in terms.items() if entry[0]}


def leading(terms: Sum[F]) -> tuple[int, PowerProduct[F]]:
    """The greatest term in graded lexicographic order (an admissible monomial order)."""
    return max(terms.values(), key=lambda t: (len(t[1]), [atom.factor for atom in t[1]]))


def divide_monomial(mono: PowerProduct[F], by: PowerProduct[F]) -> PowerProduct[F] | None:
    """The quotient of two monomials; None if ``by`` does not divide."""
    rest = list(mono)
    for factor in by:
        for position, atom in enumerate(rest):
            if atom.text == factor.text:
                del rest[position]
                break
        else:
            return None
    return tuple(rest)


def shared_factors(a: PowerProduct[F], b: PowerProduct[F]) -> PowerProduct[F]:
    """The greatest monomial that divides both."""
    rest = [atom.text for atom in b]
    kept: list[F] = []
    for atom in a:
        if atom.text in rest:
            rest.remove(atom.text)
            kept.append(atom)
    return tuple(kept)
