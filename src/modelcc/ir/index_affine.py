"""Substitution, evaluation and coefficients of index expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from modelcc.ir.index_expr import (
    Atom,
    Division,
    FloorDiv,
    FloorMod,
    Index,
    Monomial,
    Sym,
    Terms,
    build,
    floordiv,
    mod,
    product,
    term,
)
from modelcc.ir.index_extremum import IndexMax, IndexMin, maximum, minimum
from modelcc.ir.index_poly import merge


def without(e: Index, name: str) -> Index:
    """The terms of ``e`` that do not have ``name`` as a factor.

    >>> from modelcc.ir.index import parse_index
    >>> str(without(parse_index("a*b + a + b + 3"), "a"))
    'b + 3'
    """
    if isinstance(e, int):
        return e
    kept = [(c, mono) for c, mono in e.terms.values() if all(a != Sym(name) for a in mono)]
    return sum((term(c, mono) for c, mono in kept), e.const)


def substitute(e: Index, values: Mapping[str, Index]) -> Index:
    """``e`` with all symbols in ``values`` replaced at once, in canonical form again."""
    if isinstance(e, int):
        return e
    if type(e) is Sym:
        return values.get(e.name, e)
    if values.keys().isdisjoint(e.symbols):
        return e
    if isinstance(e, Atom):
        return _substitute_atom(e, values)
    kept: Terms = {}
    renamed: Terms = {}
    const = e.const
    replaced: Index = 0
    for key, (coeff, mono) in e.terms.items():
        if len(mono) == 1:
            atom = mono[0]
            plain = type(atom) is Sym
            new = values.get(atom.name, atom) if plain else _substitute_atom(atom, values)
            touched = new is not atom
        else:
            parts = [_substitute_atom(atom, values) for atom in mono]
            touched = any([a is not b for a, b in zip(parts, mono, strict=True)])
            new = product(parts) if touched else 0
        if not touched:
            kept[key] = (coeff, mono)
        elif isinstance(new, int):
            const += new * coeff
        elif type(new) is Sym and new.text not in renamed:
            renamed[new.text] = (coeff, (new,))
        else:
            replaced = replaced + new * coeff
    if renamed:
        kept = merge(kept, renamed, 1) if kept else renamed
    return build(kept, const) + replaced


def _substitute_atom(atom: Atom, values: Mapping[str, Index]) -> Index:
    match atom:
        case Sym(name):
            return values.get(name, atom)
        case _ if values.keys().isdisjoint(atom.symbols):
            return atom
        case FloorDiv(dividend, divisor):
            return floordiv(substitute(dividend, values), substitute(divisor, values))
        case FloorMod(dividend, divisor):
            return mod(substitute(dividend, values), substitute(divisor, values))
        case IndexMin(args):
            return minimum(*(substitute(arg, values) for arg in args))
        case IndexMax(args):
            return maximum(*(substitute(arg, values) for arg in args))
        case _:
            raise TypeError(f"unknown kind of index atom: {type(atom).__name__}")


def evaluate(e: Index, values: Mapping[str, int]) -> int:
    """The value of ``e``; KeyError naming the symbol that has no value."""
    try:
        return _value(e, values)
    except KeyError:  # a symbol without a value may be a factor of 0
        result = substitute(e, values)
    if isinstance(result, int):
        return result
    missing = sorted(result.symbols - values.keys())
    raise KeyError(f"{e} has no value: symbol {', '.join(missing)} is not given")


def _value(e: Index, values: Mapping[str, int]) -> int:
    match e:
        case int():
            return e
        case Sym(name):
            return values[name]
        case FloorDiv(dividend, divisor):
            return _value(dividend, values) // _value(divisor, values)
        case FloorMod(dividend, divisor):
            return _value(dividend, values) % _value(divisor, values)
        case IndexMin(args):
            return min(_value(arg, values) for arg in args)
        case IndexMax(args):
            return max(_value(arg, values) for arg in args)
        case _:
            result = e.const
            for coeff, mono in e.terms.values():
                for atom in mono:
                    coeff *= values[atom.name] if type(atom) is Sym else _value(atom, values)
                result += coeff
            return result


def coefficient(e: Index, name: str) -> Index | None:
    """``c`` with ``e == c*name + rest`` and ``name`` in neither; None if there is none."""
    split = split_affine(e, (name,))
    return None if split is None else split[0][name]


def split_affine(e: Index, names: Sequence[str]) -> tuple[dict[str, Index], Index] | None:
    """``(c, rest)`` with ``e == sum(c[n]*n for n in names) + rest``, none of it using names.

    Every name has an entry, 0 where ``e`` does not depend on it. None if ``e`` is not affine in
    the names taken together.
    """
    coefficients: dict[str, Index] = dict.fromkeys(names, 0)
    if isinstance(e, int) or e.symbols.isdisjoint(names):
        return coefficients, e
    rest: Terms = {}
    for key, (coeff, mono) in e.terms.items():
        touched = [atom for atom in mono if not atom.symbols.isdisjoint(coefficients)]
        if not touched:
            rest[key] = (coeff, mono)
            continue
        atom = touched[0]
        if len(touched) > 1 or not isinstance(atom, Sym):
            return None
        others = _without(mono, atom)
        coefficients[atom.name] = coefficients[atom.name] + term(coeff, others)
    return coefficients, build(rest, e.const)


def _without(mono: Monomial, atom: Atom) -> Monomial:
    return tuple(factor for factor in mono if factor is not atom)


def total(items: Sequence[Index]) -> Index:
    """The sum of all items; 0 for none.  A pairwise sum: long prefixes with many different symbols
    are not built."""
    level = list(items)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        level = [*(a + b for a, b in pairs), *level[len(level) & ~1 :]]
    return level[0] if level else 0


def divisions(e: Index) -> Iterator[Division]:
    """The quotients and remainders in ``e``, those within others after them."""
    if isinstance(e, int):
        return
    for atom in (atom for _, mono in e.terms.values() for atom in mono):
        if isinstance(atom, Division):
            yield atom
        for operand in atom.operands():
            yield from divisions(operand)
