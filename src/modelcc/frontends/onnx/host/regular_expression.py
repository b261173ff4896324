"""Regular expressions in RE2's syntax (github.com/google/re2/wiki/Syntax), compiled to programs.

Greediness and captures do not affect whether a whole string matches.  RE2's limits apply: there are
no backreferences and no lookaround, and nothing is repeated more than 1000 times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NoReturn

from modelcc.frontends.kit.errors import unsupported
from modelcc.frontends.onnx.host.character_sets import (
    ALL,
    LAST,
    PERL,
    POSIX,
    Ranges,
    category,
    complement,
    folded,
    union,
)

Instruction = tuple[str | int, ...]
"""See :mod:`modelcc.runtime.full_match`; the sets of characters are ranges here."""

Code = tuple[Instruction, ...]

MOST_REPETITIONS = 1000
MOST_INSTRUCTIONS = 100_000

_NEWLINE = ord("\n")
_ESCAPES = MappingProxyType({"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11})
_NAMED_GROUP = re.compile(r"\(\?P?<(\w+)>")
_FLAGS = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])")
_REPETITION = re.compile(r"\{(0|[1-9][0-9]{0,8})(?:(,)(0|[1-9][0-9]{0,8})?)?\}")
_POSIX_CLASS = re.compile(r"\[:(\^?)(.*?):\]", re.DOTALL)
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_HEXADECIMAL = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})")


class PatternError(Exception):
    """The error in a regular expression."""


@dataclass(frozen=True)
class Flags:
    """Whether matching ignores case, ^ and $ match at lines, and a dot matches newlines."""

    i: bool = False
    m: bool = False
    s: bool = False
    U: bool = False


@dataclass(frozen=True)
class Fragment:
    """Code that may be repeated; ``times`` is the nested repetition count of its parts."""

    code: Code
    times: int = 1


@dataclass
class _Alternatives:
    """Completed alternatives, parts of the current one, and the enclosing flags."""

    flags: Flags
    alternatives: list[Fragment] = field(default_factory=list[Fragment])
    parts: list[Fragment] = field(default_factory=list[Fragment])


def parse(pattern: str) -> tuple[Code, tuple[Ranges, ...]]:
    """Code of ``pattern`` and its character sets; :class:`PatternError`."""
    reader = _Reader(pattern)
    return reader.read(), tuple(reader.sets)


class _Reader:
    """A recursive-descent parser; ``groups`` are the open ones, the outermost first."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.flags = Flags()
        self.groups = [_Alternatives(self.flags)]
        self.sets: dict[Ranges, int] = {}

    def read(self) -> Code:
        after_repetition = False
        while self.at < len(self.pattern):
            start = self.at
            repeats = self._repetition()
            if repeats is None:
                self._other()
            elif after_repetition:
                self._fail(f"a repetition of a repetition, {self.pattern[start : self.at]!r}")
            else:
                self._repeat(start, *repeats)
            after_repetition = repeats is not None
        if len(self.groups) > 1:
            self._fail("a ( without its )")
        return _either(self._closed(self.groups[0])).code

    def _fail(self, what: str) -> NoReturn:
        raise PatternError(what)

    def _accept(self, literal: str) -> bool:
        found = self.pattern.startswith(literal, self.at)
        self.at += len(literal) if found else 0
        return found

    def _match(self, syntax: re.Pattern[str]) -> re.Match[str] | None:
        found = syntax.match(self.pattern, self.at)
        self.at = found.end() if found else self.at
        return found

    def _repetition(self) -> tuple[int, int | None] | None:
        """Minimum and maximum count; a brace that is no quantifier is a literal."""
        counted = self._match(_REPETITION)
        if counted:
            low, comma, high = counted.groups()
            bounds = int(low), int(high) if high else None if comma else int(low)
        else:
            signs = (("*", (0, None)), ("+", (1, None)), ("?", (0, 1)))
            bounds = next((b for sign, b in signs if self._accept(sign)), None)
        if bounds is not None:
            self._accept("?")
        return bounds

    def _repeat(self, start: int, low: int, high: int | None) -> None:
        """Repeats the last part."""
        sign = self.pattern[start : self.at]
        parts = self.groups[-1].parts
        if not parts:
            self._fail(f"nothing before the repetition {sign!r}")
        part = parts.pop()
        most = low if high is None else high
        times = part.times * max(most, 1)
        if (high is not None and low > high) or max(low, most, times) > MOST_REPETITIONS:
            self._fail(f"the repetition {sign!r}: at most {MOST_REPETITIONS} in all, least first")
        if (len(part.code) + 1) * (most + 1) > MOST_INSTRUCTIONS:
            self._too_long()
        self._add(repeated(part.code, low, high), times)

    def _add(self, code: Code, times: int = 1) -> None:
        self.groups[-1].parts.append(Fragment(code, times))

    def _too_long(self) -> NoReturn:
        self._fail(f"more than {MOST_INSTRUCTIONS:,} steps, repetitions written out")

    def _one(self, ranges: Ranges) -> None:
        """A character of ``ranges``."""
        self._add((("one", self.sets.setdefault(ranges, len(self.sets))),))

    def _literal(self, code: int) -> None:
        self._one(self._cased(((code, code),)))

    def _cased(self, ranges: Ranges) -> Ranges:
        return folded(ranges) if self.flags.i else ranges

    def _other(self) -> None:
        """Any token except a quantifier."""
        character = self.pattern[self.at]
        match character:
            case "\\":
                self._escape()
            case "[":
                self._one(self._class())
            case "(":
                self._open()
            case ")":
                self._close()
            case "|":
                self.at += 1
                self._next_alternative()
            case _:
                self.at += 1
                self._simple(character)

    def _simple(self, character: str) -> None:
        match character:
            case ".":
                self._one(ALL if self.flags.s else complement(((_NEWLINE, _NEWLINE),)))
            case "^":
                self._where("start of line" if self.flags.m else "start of text")
            case "$":
                self._where("end of line" if self.flags.m else "end of text")
            case _:
                self._literal(ord(character))

    def _where(self, condition: str) -> None:
        self._add((("where", condition),))

    def _open(self) -> None:
        """A group, or flags for the rest of the current one."""
        around = self.flags
        if not self.pattern.startswith("(?", self.at):
            self.at += 1
        elif not self._match(_NAMED_GROUP):
            found = self._match(_FLAGS)
            if found is None:
                self._fail(_unknown_group(self.pattern[self.at :]))
            on, off, end = found.groups()
            changes = dict.fromkeys(on, True) | dict.fromkeys((off or "-")[1:], False)
            self.flags = replace(around, **changes)
            if end == ")":
                return
        self.groups.append(_Alternatives(around))

    def _close(self) -> None:
        if len(self.groups) == 1:
            self._fail("a ) without its (")
        self.at += 1
        group = self.groups.pop()
        self.flags = group.flags
        self.groups[-1].parts.append(_either(self._closed(group)))

    def _next_alternative(self) -> None:
        group = self.groups[-1]
        group.alternatives.append(self._joined(group.parts))
        group.parts = []

    def _closed(self, group: _Alternatives) -> Sequence[Fragment]:
        return (*group.alternatives, self._joined(group.parts))

    def _joined(self, parts: Sequence[Fragment]) -> Fragment:
        if sum(len(part.code) for part in parts) > MOST_INSTRUCTIONS:
            self._too_long()
        code = tuple(instruction for part in parts for instruction in part.code)
        return Fragment(code, max((part.times for part in parts), default=1))

    def _escape(self) -> None:
        conditions = {"b": "edge of word", "B": "no edge of word", "A": "start of text",
                      "z": "end of text"}  # fmt: skip
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter in conditions:
            self.at += 2
            self._where(conditions[letter])
        elif letter == "Q":
            quoted, _, _ = self.pattern[self.at + 2 :].partition("\\E")
            self.at = min(self.at + 4 + len(quoted), len(self.pattern))
            for character in quoted:
                self._literal(ord(character))
        elif letter == "C":
            unsupported(f"the regular expression {self.pattern!r}: \\C takes a byte of a character")
        else:
            named = self._named_set()
            if named is None:
                self._literal(self._escaped())
            else:
                self._one(named)

    def _named_set(self) -> Ranges | None:
        """A set such as ``\\d`` or ``\\pL``, if one is next."""
        if self.pattern[self.at : self.at + 1] != "\\":
            return None
        letter = self.pattern[self.at + 1 : self.at + 2]
        if letter in ("p", "P"):
            self.at += 2
            return self._of_unicode(letter == "P")
        if letter == "" or letter.lower() not in PERL:
            return None
        self.at += 2
        found = self._cased(PERL[letter.lower()])
        return complement(found) if letter.isupper() else found

    def _of_unicode(self, negated: bool) -> Ranges:
        start = self.at
        if self._accept("{"):
            name, brace, _ = self.pattern[self.at :].partition("}")
            self.at += len(name) + len(brace)
        else:
            name, brace = self.pattern[start : start + 1], "}"
            self.at += 1
        if not name or not brace:
            self._fail("\\p without a name")
        if name.startswith("^"):
            name, negated = name[1:], not negated
        found = category(name)
        if found is None:
            reason = "only general categories such as Lu are known, not scripts; write its ranges"
            unsupported(f"the regular expression {self.pattern!r}: \\p{{{name}}} ({reason})")
        found = self._cased(found)
        return complement(found) if negated else found

    def _escaped(self) -> int:
        """The character denoted by an escape."""
        self.at += 1
        octal = self._match(_OCTAL)
        if octal:
            return int(octal[0], 8)
        hexadecimal = self._match(_HEXADECIMAL)
        if hexadecimal:
            code = int(hexadecimal[1] or hexadecimal[2], 16)
            return code if code <= LAST else self._fail(f"'\\{hexadecimal[0]}' is no character")
        letter = self.pattern[self.at : self.at + 1]
        if not letter or not letter.isascii() or (letter.isalnum() and letter not in _ESCAPES):
            self._fail(_unknown_escape(letter))
        self.at += 1
        return _ESCAPES.get(letter, ord(letter))

    def _class(self) -> Ranges:
        """A bracketed set; a leading ] is a member."""
        self.at += 1
        negated = self._accept("^")
        found: list[tuple[int, int]] = []
        first = True
        while first or not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern):
                self._fail("a [ without its ]")
            named = self._posix_set() or self._named_set()
            found += named if named is not None else self._cased((self._range(),))
            first = False
        self.at += 1
        ranges = union(found)
        return complement(ranges) if negated else ranges

    def _posix_set(self) -> Ranges | None:
        found = self._match(_POSIX_CLASS)
        if not found:
            return None
        negated, name = found.groups()
        if name not in POSIX:
            self._fail(f"there is no class [:{name}:]")
        ranges = self._cased(POSIX[name])
        return complement(ranges) if negated else ranges

    def _range(self) -> tuple[int, int]:
        start = self.at
        first = last = self._member()
        rest = self.pattern[self.at : self.at + 2]
        if len(rest) == 2 and rest[0] == "-" and rest[1] != "]":
            self.at += 1
            last = self._member()
        if last < first:
            self._fail(f"the range {self.pattern[start : self.at]!r} ends before it begins")
        return first, last

    def _member(self) -> int:
        if self.pattern.startswith("\\", self.at):
            return self._escaped()
        self.at += 1
        return ord(self.pattern[self.at - 1])


def _unknown_group(rest: str) -> str:
    around = ("(?=", "(?!", "(?<=", "(?<!")
    if rest.startswith(around):
        return f"RE2 has no looking around, {rest[:4].rstrip()!r}"
    return f"an unknown kind of group, {rest[:4]!r}"


def _unknown_escape(letter: str) -> str:
    if letter.isdigit():
        return f"RE2 has no backreferences, '\\{letter}'"
    return f"the escape '\\{letter}' means nothing"


def _either(parts: Sequence[Fragment]) -> Fragment:
    """Code for the alternation of ``parts``."""
    if len(parts) == 1:
        return parts[0]
    size = 1 + sum(len(part.code) + 1 for part in parts) - 1
    code: list[Instruction] = []
    starts: list[int] = []
    for part in parts:
        starts.append(1 + len(code))
        code += part.code
        code.append(("fork", size - 1 - len(code)))
    return Fragment((("fork", *starts), *code[:-1]), max(part.times for part in parts))


def repeated(code: Code, low: int, high: int | None) -> Code:
    """``code`` at least ``low`` times and at most ``high``, if not None."""
    size = len(code)
    if high is None and low:
        return (*code * low, ("fork", 1, -size))
    if high is None:
        return (("fork", 1, size + 2), *code, ("fork", -size - 1))
    optional = range(high - low, 0, -1)
    rest = (i for left in optional for i in (("fork", 1, left * (size + 1)), *code))
    return (*code * low, *rest)
