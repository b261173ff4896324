"""Reading index expressions, and compiling them to Python functions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from modelcc.ir.index_expr import (
    Atom,
    Expr,
    FloorDiv,
    FloorMod,
    Index,
    Sym,
    ceildiv,
    floordiv,
    mod,
    symbols,
)
from modelcc.ir.index_extremum import IndexMin, maximum, minimum
from modelcc.ir.index_names import RESERVED

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<int>\d+)|(?P<name>[A-Za-z_][A-Za-z0-9_.]*)|(?P<quoted>"(?:[^"\\]|\\.)*")"""
    r"""|(?P<op>//|[-+*%(),])|(?P<end>$)|(?P<bad>.))""",
    re.DOTALL,
)


def parse_index(text: str) -> Index:
    """The index that ``text`` spells: the inverse of ``str``; SyntaxError where it is none.

    Grammar: ``sum = term (('+' | '-') term)*``, ``term = unary (op unary)*`` with op one of
    ``* floordiv ceildiv mod // %``, ``unary = '-' unary | INT | NAME | STRING | '(' sum ')' |
    ('min' | 'max') '(' sum (',' sum)* ')'``.
    """
    parser = _Parser(text)
    result = parser.sum()
    parser.expect("")
    return result


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._start = 0
        self._kind = ""
        self._token = ""
        self._advance()

    def _advance(self) -> str:
        token = self._token
        match = _TOKEN.match(self._text, self._end)
        if match is None or match.lastgroup is None:
            raise self._error("cannot be read")
        self._kind, self._token = match.lastgroup, match[match.lastgroup]
        self._start, self._end = match.start(match.lastgroup), match.end()
        return token

    def _error(self, problem: str) -> SyntaxError:
        marker = " " * self._start + "^"
        return SyntaxError(
            f"index expression {problem} at column {self._start + 1}:\n  {self._text}\n  {marker}"
        )

    def expect(self, token: str) -> None:
        if self._token != token or self._kind == "quoted":
            wanted = f"'{token}'" if token else "the end"
            found = f"'{self._token}'" if self._token else "the end"
            raise self._error(f"has {found} where {wanted} should be")
        if token:
            self._advance()

    def sum(self) -> Index:
        value = self._term()
        while self._kind == "op" and self._token in "+-":
            value = value + self._term() if self._advance() == "+" else value - self._term()
        return value

    def _term(self) -> Index:
        value = self._unary()
        while True:
            match self._kind, self._token:
                case "op", "*":
                    self._advance()
                    value = value * self._unary()
                case ("name", "floordiv") | ("op", "//"):
                    self._advance()
                    value = floordiv(value, self._unary())
                case ("name", "mod") | ("op", "%"):
                    self._advance()
                    value = mod(value, self._unary())
                case "name", "ceildiv":
                    self._advance()
                    value = ceildiv(value, self._unary())
                case _:
                    return value

    def _unary(self) -> Index:
        match self._kind, self._token:
            case "int", _:
                return int(self._advance())
            case "quoted", _:
                return Sym(json.loads(self._advance()))
            case "name", "min" | "max":
                return self._extremum(self._advance())
            case "name", name if name not in RESERVED:
                return Sym(self._advance())
            case "op", "-":
                self._advance()
                return -self._unary()
            case "op", "(":
                self._advance()
                value = self.sum()
                self.expect(")")
                return value
            case _:
                found = f"'{self._token}'" if self._token else "the end"
                raise self._error(f"has {found} where a value should be")

    def _extremum(self, word: str) -> Index:
        self.expect("(")
        args = [self.sum()]
        while self._token == "," and self._kind == "op":
            self._advance()
            args.append(self.sum())
        self.expect(")")
        return minimum(*args) if word == "min" else maximum(*args)


NESTED = 256
"""Terms per nested sum in Python source; Python's compiler recurses once per term."""


def compile_index(e: Index) -> Callable[[Mapping[str, int]], int]:
    """A fast function from the values of symbols, by name, to the value of ``e``."""
    source = python_source(e, {name: f"v[{name!r}]" for name in symbols(e)})
    return _evaluated(f"lambda v: {source}")


def compile_shapes(
    shapes: Sequence[Sequence[Index]], names: Sequence[str]
) -> Callable[[Sequence[int]], tuple[tuple[int, ...], ...]]:
    """A fast function from the values of ``names`` to those of all extents of ``shapes``."""
    places = {name: f"v[{position}]" for position, name in enumerate(names)}
    texts = ("".join(f"{python_source(extent, places)}, " for extent in shape) for shape in shapes)
    return _evaluated(f"lambda v: ({''.join(f'({text}), ' for text in texts)})")


def _evaluated(source: str) -> Callable[..., Any]:
    return eval(compile(source, "<index>", "eval"), {"min": min, "max": max})


def python_source(e: Index, spelling: Mapping[str, str]) -> str:
    """A parenthesised Python expression for ``e``, given the spelling of each symbol."""
    if isinstance(e, int):
        return f"({e})" if e < 0 else str(e)
    if isinstance(e, Atom):
        return _atom_source(e, spelling)
    return f"({_sum_source(e, spelling)})"


def _sum_source(e: Expr, spelling: Mapping[str, str]) -> str:
    parts = [
        "*".join([str(coeff)] * (coeff != 1) + [_atom_source(atom, spelling) for atom in mono])
        for coeff, mono in e.terms.values()
    ]
    parts += [str(e.const)] if e.const else []
    while len(parts) > NESTED:
        groups = (parts[i : i + NESTED] for i in range(0, len(parts), NESTED))
        parts = [f"({' + '.join(group)})" for group in groups]
    return " + ".join(parts)


def _atom_source(atom: Atom, spelling: Mapping[str, str]) -> str:
    if isinstance(atom, Sym):
        return spelling[atom.name]
    args = [python_source(operand, spelling) for operand in atom.operands()]
    match atom:
        case FloorDiv():
            return f"({args[0]} // {args[1]})"
        case FloorMod():
            return f"({args[0]} % {args[1]})"
        case _:
            return f"{'min' if isinstance(atom, IndexMin) else 'max'}({', '.join(args)})"
