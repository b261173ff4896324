"""Character sets of regular expressions, as in RE2: ranges of code points."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from types import MappingProxyType

Ranges = tuple[tuple[int, int], ...]
"""First and last code points, sorted and disjoint."""

LAST = 0x10FFFF
ALL: Ranges = ((0, LAST),)


def union(pieces: Iterable[tuple[int, int]]) -> Ranges:
    """The union of ``pieces``, in any order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(pieces):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(merged[-1][1], last)
        else:
            merged.append((first, last))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """The complement of ``ranges``."""
    starts = (0, *(last + 1 for _, last in ranges))
    ends = (*(first - 1 for first, _ in ranges), LAST)
    return tuple((a, b) for a, b in zip(starts, ends, strict=True) if a <= b)


def characters(text: str) -> Ranges:
    """Each character of ``text``; a dash between two denotes a range."""
    parts = text.split(" ")
    return union((ord(part[0]), ord(part[-1])) for part in parts)


PERL: Mapping[str, Ranges] = MappingProxyType(
    {"d": characters("0-9"), "s": union([(9, 10), (12, 13), (32, 32)]),
     "w": characters("0-9 A-Z a-z _")}
)  # fmt: skip
"""ASCII only, whatever the text."""

POSIX: Mapping[str, Ranges] = MappingProxyType(
    {
        "alnum": characters("0-9 A-Z a-z"),
        "alpha": characters("A-Z a-z"),
        "ascii": ((0, 127),),
        "blank": ((9, 9), (32, 32)),
        "cntrl": ((0, 31), (127, 127)),
        "digit": PERL["d"],
        "graph": characters("!-~"),
        "lower": characters("a-z"),
        "print": ((32, 126),),
        "punct": characters("!-/ :-@ [-` {-~"),
        "space": ((9, 13), (32, 32)),
        "upper": characters("A-Z"),
        "word": PERL["w"],
        "xdigit": characters("0-9 A-F a-f"),
    }
)

_KINDS = {
    "C": "cfos",
    "L": "lmotu",
    "M": "cen",
    "N": "dlo",
    "P": "cdefios",
    "S": "ckmo",
    "Z": "lps",
}
_CATEGORIES = frozenset(
    (*_KINDS, *(main + kind for main, kinds in _KINDS.items() for kind in kinds))
)


def category(name: str) -> Ranges | None:
    """Characters of a Unicode general category such as ``Lu``, or of all with this prefix."""
    if name == "Any":
        return ALL
    if name not in _CATEGORIES:
        return None
    found = (ranges for full, ranges in _by_category().items() if full.startswith(name))
    return union(piece for ranges in found for piece in ranges)


@cache
def _by_category() -> Mapping[str, Sequence[tuple[int, int]]]:
    """Ranges of each category; ``Cn``, unassigned, is excluded."""
    found: dict[str, list[tuple[int, int]]] = {}
    first = 0
    for name, run in groupby(map(unicodedata.category, map(chr, range(LAST + 1)))):
        beyond = first + sum(1 for _ in run)
        found.setdefault(name, []).append((first, beyond - 1))
        first = beyond
    del found["Cn"]
    return MappingProxyType(found)


def folded(ranges: Ranges) -> Ranges:
    """``ranges`` closed under case folding."""
    starts = [first for first, _ in ranges]

    def extra() -> Iterator[tuple[int, int]]:
        for code, alike in _orbits().items():
            place = bisect_right(starts, code) - 1
            if place >= 0 and code <= ranges[place][1]:
                yield from ((other, other) for other in alike)

    return union((*ranges, *extra()))


@cache
def _orbits() -> Mapping[int, tuple[int, ...]]:
    """Code points that are equal under Unicode case folding, by each of them."""
    alike: dict[str, list[int]] = {}
    for code in range(0x20000):  # planes 0 and 1: the others have no case
        to = chr(code).casefold()
        if to != chr(code):
            alike.setdefault(to, list(map(ord, to if len(to) == 1 else ""))).append(code)
    groups = (tuple(group) for group in alike.values() if len(group) > 1)
    return MappingProxyType({code: group for group in groups for code in group})
