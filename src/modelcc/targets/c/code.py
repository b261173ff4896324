"""C text under construction: indented lines, and scopes of names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from modelcc.ir.index import Range
from modelcc.ir.loop import Buffer
from modelcc.targets.c.dialect import GNU, CDialect
from modelcc.targets.c.names import comment, identifier

WIDTH = 100
_INDENT = "    "


@dataclass(frozen=True)
class CExpression:
    """A C expression.  ``atomic``: needs no parentheses.  ``mask``: bits of the elements of a
    vector of masks, 0 for everything else."""

    text: str
    atomic: bool = True
    mask: int = 0

    @property
    def inner(self) -> str:
        """The text as part of a larger expression."""
        return self.text if self.atomic else f"({self.text})"


@dataclass(frozen=True)
class Named:
    """The C form of a ``Let`` or a register: its operand and type."""

    operand: CExpression
    type: str
    is_register: bool = False


@dataclass
class CScope:
    """Names visible in a block."""

    symbols: dict[str, str] = field(default_factory=dict[str, str])
    values: dict[str, Named] = field(default_factory=dict[str, Named])
    buffers: dict[str, tuple[str, Buffer]] = field(default_factory=dict[str, "tuple[str, Buffer]"])
    bounds: dict[str, Range] = field(default_factory=dict[str, Range])
    taken: set[str] = field(default_factory=set[str])


class Code:
    """The body of one C function."""

    def __init__(self, dialect: CDialect = GNU) -> None:
        self.lines: list[str] = []
        self.scopes = [CScope()]
        self.index = dialect.index
        self._reserved = dialect.reserved

    @property
    def scope(self) -> CScope:
        return self.scopes[-1]

    def fresh(self, hint: str) -> str:
        """An identifier derived from ``hint`` that shadows no visible one and is not reserved."""
        name = base = identifier(hint)
        count = 0
        while name in self._reserved or any(name in scope.taken for scope in self.scopes):
            count += 1
            name = f"{base}_{count}"
        self.scope.taken.add(name)
        return name

    def line(self, text: str, note: str = "") -> None:
        """Append a line, indented and broken if too long; ``note`` is a comment on it."""
        indent = _INDENT * len(self.scopes)
        noted = f"{text} /* {comment(note)} */"
        if note and len(indent) + len(noted) <= WIDTH:
            self.lines.append(indent + noted)
            return
        if note:
            self.comment(note)
        self.lines += folded(text, indent)

    def comment(self, text: str) -> None:
        """Append a comment for each line of ``text``."""
        indent = _INDENT * len(self.scopes)
        for line in text.splitlines():
            self.lines += folded(f"/* {comment(line)} */", indent)

    def directive(self, text: str) -> None:
        """Append a line for the preprocessor or a pragma, in one piece."""
        self.lines.append(_INDENT * len(self.scopes) + text)

    @contextmanager
    def block(self, head: str) -> Generator[CScope]:
        """``head {`` … ``}``: declarations inside go out of scope at its end."""
        self.line(f"{head} {{".lstrip())
        with self.nested() as scope:
            yield scope
        self.line("}")

    @contextmanager
    def nested(self) -> Generator[CScope]:
        """A scope one level deeper."""
        self.scopes.append(CScope())
        try:
            yield self.scope
        finally:
            self.scopes.pop()

    def narrowed(self, number: CExpression) -> str:
        """An integer of up to 64 bits converted to an index."""
        return number.text if self.index == "int64_t" else f"({self.index}){number.inner}"

    def value(self, name: str) -> Named:
        """The C form of the ``Let`` or register ``name``."""
        for scope in reversed(self.scopes):
            if name in scope.values:
                return scope.values[name]
        raise KeyError(f"value '{name}' is not defined here")

    def buffer(self, name: str) -> tuple[str, Buffer]:
        """Identifier and declaration of a visible buffer."""
        for scope in reversed(self.scopes):
            if name in scope.buffers:
                return scope.buffers[name]
        raise KeyError(f"buffer '{name}' is not declared here")

    def symbol(self, name: str) -> str:
        """Identifier of a visible index symbol."""
        for scope in reversed(self.scopes):
            if name in scope.symbols:
                return scope.symbols[name]
        raise KeyError(f"index symbol '{name}' is not bound here")

    def bounds(self) -> dict[str, Range]:
        """Known bounds of the visible symbols."""
        merged: dict[str, Range] = {}
        for scope in self.scopes:
            merged.update(scope.bounds)
        return merged


def words_of(lines: Iterable[str]) -> Counter[str]:
    """Number of occurrences of each identifier in lines of C, without comments."""
    return Counter(re.findall(r"\w+", re.sub(r"/\*.*?\*/", " ", "\n".join(lines), flags=re.DOTALL)))


def folded(text: str, indent: str) -> list[str]:
    """``text`` as lines of at most :data:`WIDTH` columns, broken after commas if possible."""
    if len(indent) + len(text) <= WIDTH:
        return [indent + text]
    lines = [indent]
    for glue, word in _words(text, WIDTH - len(indent) - len(_INDENT)):
        if lines[-1].strip() and len(lines[-1]) + len(glue) + len(word) > WIDTH:
            lines.append(indent + _INDENT + word)
        else:
            lines[-1] += (glue if lines[-1].strip() else "") + word
    return lines


def _words(text: str, room: int) -> Iterator[tuple[str, str]]:
    """Parts of at most ``room`` columns, if possible, and the separator before each on a line."""
    for argument in text.replace(", ", ",\n").split("\n"):
        if len(argument) <= room:
            yield " ", argument
            continue
        for word in argument.split(" "):
            first, *inner = word.replace("(", "(\n").split("\n") if len(word) > room else [word]
            yield " ", first
            yield from (("", part) for part in inner)
