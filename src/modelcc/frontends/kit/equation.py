"""Einsum equations in the frameworks' form: implicit results, ellipses, and broadcasting."""

from __future__ import annotations

import string
from collections.abc import Sequence

from modelcc.frontends.kit.conversion import Conversion
from modelcc.frontends.kit.stretching import common_shape
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index
from modelcc.ops.arithmetic import Value
from modelcc.ops.matmul import Einsum
from modelcc.ops.views import reshaped


def contracted(call: Conversion, equation: str, names: Sequence[str]) -> str:
    """The contraction of ``names``; without an explicit result, its letters are those that occur
    once, sorted."""
    ranks = [call.type_of(name).rank for name in names]
    return _broadcast_product(call, explicit(equation, ranks), names)


def explicit(equation: str, ranks: Sequence[int]) -> str:
    """``equation`` for operands of ``ranks`` with an explicit result and letters in place of
    ellipses.

    :class:`ModelError` if it does not fit the operands.
    """
    equation = equation.replace(" ", "")
    if "->" not in equation:
        letters = sorted(set(equation) - set(",."))
        once = "".join(c for c in letters if equation.count(c) == 1)
        equation = f"{equation}->{'...' if '...' in equation else ''}{once}"
    return _spelled_out(equation, ranks) if "..." in equation else equation


def _broadcast_product(call: Conversion, equation: str, names: Sequence[str]) -> str:
    """After dropping axes of extent 1 whose letter has a larger extent in another operand."""
    terms, result = equation.split("->")
    parts = terms.split(",")
    shapes = [call.type_of(name).shape for name in names]
    if list(map(len, parts)) != list(map(len, shapes)):
        return call.emit(Einsum(equation), *names)  # which says what is wrong
    pairs = [zip(p, shape, strict=True) for p, shape in zip(parts, shapes, strict=True)]
    wide = {letter for pair in pairs for letter, extent in pair if extent != 1}
    values: list[str] = []
    for i, (letters, shape) in enumerate(zip(tuple(parts), shapes, strict=True)):
        kept = [a for a, c in enumerate(letters) if shape[a] != 1 or c not in wide]
        parts[i] = "".join(letters[a] for a in kept)
        values.append(reshaped(Value(call, names[i]), *(shape[a] for a in kept)).name)
    return call.emit(Einsum(f"{','.join(parts)}->{result}"), *_letters_met(call, parts, values))


def _letters_met(call: Conversion, parts: Sequence[str], values: Sequence[str]) -> list[str]:
    """``values``, expanded where a symbolic extent may be 1 and another operand's of the same
    letter is not."""
    along: dict[str, dict[Index, None]] = {}
    for letters, value in zip(parts, values, strict=True):
        for letter, extent in zip(letters, call.type_of(value).shape, strict=True):
            along.setdefault(letter, {})[extent] = None
    met = {c: common_shape([(e,) for e in found], call.bounds) for c, found in along.items()}
    return [
        call.emitter.stretched(value, tuple(met[c][0] for c in letters), call.source)
        for letters, value in zip(parts, values, strict=True)
    ]


def _spelled_out(equation: str, ranks: Sequence[int]) -> str:
    """Letters for the ellipses, aligned at the right as in broadcasting."""
    terms, result = equation.split("->")
    free = [c for c in string.ascii_letters if c not in equation]
    parts = terms.split(",")
    if len(parts) != len(ranks):
        raise ModelError(f"equation {equation!r} has {len(parts)} terms for {len(ranks)} operands")
    counts = [
        rank - len(part.replace("...", "")) if "..." in part else 0
        for part, rank in zip(parts, ranks, strict=True)
    ]
    most = max(counts)
    if min(counts) < 0 or most > len(free):
        raise ModelError(f"equation {equation!r} does not fit its operands' ranks")
    hidden = "".join(free[:most])
    spelled = [
        part.replace("...", hidden[most - count :])
        for part, count in zip(parts, counts, strict=True)
    ]
    return f"{','.join(spelled)}->{result.replace('...', hidden)}"
