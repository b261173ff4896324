"""Regular expressions as the automata that the runtime matches strings with."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from modelcc.frontends.onnx.host.character_sets import LAST, PERL, Ranges
from modelcc.frontends.onnx.host.regular_expression import parse
from modelcc.ir.structure import Setting

_NEWLINE: Ranges = ((10, 10),)
_BESIDE = (_NEWLINE, PERL["w"])
"""Character sets that zero-width assertions test next to a position."""

_NEWLINE_KIND, _WORD, _OTHER = 1, 2, 3
"""See :mod:`modelcc.runtime.full_match`."""


def matching_machine(pattern: str) -> Mapping[str, Setting]:
    """Settings of the runtime's ``full_match``; PatternError if ``pattern`` is not valid in RE2.

    Characters that no set distinguishes form one class, so there are few classes.
    """
    code, sets = parse(pattern)
    conditional = any(instruction[0] == "where" for instruction in code)
    classes = (*sets, *(_BESIDE if conditional else ()))
    bounds = sorted({0, *(edge for ranges in classes for a, b in ranges for edge in (a, b + 1))})
    bounds = [bound for bound in bounds if bound <= LAST]
    members = [_members(ranges, bounds) for ranges in classes]
    signatures = list(zip(*members, strict=True)) if classes else [() for _ in bounds]
    numbers = {signature: n for n, signature in enumerate(dict.fromkeys(signatures))}
    return {
        "program": code,
        "sets": tuple(
            tuple(n for signature, n in numbers.items() if signature[s]) for s in range(len(sets))
        ),
        "bounds": tuple(bounds),
        "classes": tuple(numbers[signature] for signature in signatures),
        "kinds": tuple(_kind(signature[len(sets) :]) for signature in numbers),
    }


def _members(ranges: Ranges, bounds: Sequence[int]) -> list[bool]:
    """Whether the characters from each bound on are in ``ranges``."""
    starts = [first for first, _ in ranges]
    ends = [last for _, last in ranges]
    places = (bisect_right(starts, bound) - 1 for bound in bounds)
    return [p >= 0 and b <= ends[p] for p, b in zip(places, bounds, strict=True)]


def _kind(beside: Sequence[bool]) -> int:
    newline, word = (*beside, False, False)[:2]
    return _NEWLINE_KIND if newline else _WORD if word else _OTHER
