"""Text forms of nodes: one template for each kind, for both printing and parsing.

    Store: "store {buffer:buffer}[{offset}](? stride({stride})?)(? mask({active})?) = {value}"

Braces hold a field, which is spelled by its annotation, or by the word after a colon.  A group
between ``(?`` and ``?)`` is omitted if its fields have their defaults, or are empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
from typing import Generic, Protocol, TypeAlias, TypeVar

from modelcc.ir.text_reader import TextReader
from modelcc.ir.types import TensorType

N = TypeVar("N")
T = TypeVar("T")

Types: TypeAlias = Mapping[str, TensorType]
NO_TYPES: Types = MappingProxyType({})

_PIECES = re.compile(r"(\(\?|\?\)|\{\w+(?::\w+)?\})")
_TOKENS = re.compile(r"\w+ ?|[^\w\s]+")
_WORD = re.compile(r"\w+|\S")


class Spelling(Protocol):
    """How fields of one sort are printed and parsed, and the tokens their text may start with."""

    @property
    def starts(self) -> tuple[str, ...]: ...

    def field_text(self, node: object, name: str, types: Types, /) -> str: ...

    def read(self, at: TextReader, stops: tuple[str, ...], /) -> object: ...


@dataclass(frozen=True)
class Syntax(Generic[T]):
    """Values that ``text`` prints and ``read`` parses, given the tokens that may follow."""

    text: Callable[[T, Types], str]
    read: Callable[[TextReader, tuple[str, ...]], T]
    starts: tuple[str, ...] = ()

    def field_text(self, node: object, name: str, types: Types) -> str:
        """The text of a field of ``node``."""
        return self.text(getattr(node, name), types)


def _is_next(at: TextReader, stops: tuple[str, ...]) -> bool:
    return at.sees(*(stop.lstrip() for stop in stops if stop.strip()))


def syntax(
    write: Callable[[T], str], reader: Callable[[TextReader], T], starts: tuple[str, ...] = ()
) -> Syntax[T]:
    """The spelling of values that need no types and are self-delimiting."""
    return Syntax(lambda value, _: write(value), lambda at, _: reader(at), starts)


def listed(one: Syntax[T], between: str = ", ") -> Syntax[tuple[T, ...]]:
    """A list of any length, empty if a token that may follow is next."""

    def read(at: TextReader, stops: tuple[str, ...]) -> tuple[T, ...]:
        sign = between.strip()
        found: list[T] = []
        if _is_next(at, stops):
            return ()
        while not found or (at.accept(sign) if sign else not _is_next(at, stops)):
            found.append(one.read(at, (sign, *stops)))
        return tuple(found)

    return Syntax(lambda values, types: between.join([one.text(v, types) for v in values]), read)


def block(one: Syntax[T]) -> Syntax[tuple[T, ...]]:
    """A list of any length in braces, each item on lines of its own."""

    def text(values: tuple[T, ...], types: Types) -> str:
        lines = [one.text(value, types).replace("\n", "\n  ") for value in values]
        return "{" + "".join(f"\n  {line}" for line in lines) + "\n}"

    def read(at: TextReader, stops: tuple[str, ...]) -> tuple[T, ...]:
        at.expect("{")
        found: list[T] = []
        while not at.accept("}"):
            found.append(one.read(at, ("\n",)))
        return tuple(found)

    return Syntax(text, read, ("{",))


def enclosed(inner: Syntax[T], opening: str = "[", closing: str = "]") -> Syntax[T]:
    """A value between two delimiters."""

    def read(at: TextReader, stops: tuple[str, ...]) -> T:
        at.expect(opening)
        found = inner.read(at, (closing,))
        at.expect(closing)
        return found

    return Syntax(lambda v, types: f"{opening}{inner.text(v, types)}{closing}", read, (opening,))


def repeated(one: Syntax[T], word: str) -> Syntax[tuple[T, ...]]:
    """A list of any length, each item after ``word``."""

    def read(at: TextReader, stops: tuple[str, ...]) -> tuple[T, ...]:
        found: list[T] = []
        while at.accept(f"{word} "):
            found.append(one.read(at, (f" {word} ", *stops)))
        return tuple(found)

    return Syntax(
        lambda values, types: "".join(f" {word} {one.text(value, types)}" for value in values), read
    )


class _Piece(Protocol):
    """Part of a template: the tokens it ``starts`` with, and whether it is ``optional``, so that
    those of the next piece may follow as well."""

    @property
    def starts(self) -> tuple[str, ...]: ...

    @property
    def optional(self) -> bool: ...

    def text(self, node: object, types: Types, /) -> str: ...

    def read(
        self, at: TextReader, stops: tuple[str, ...], values: dict[str, object], /
    ) -> None: ...


class _FieldText:
    optional = False

    def __init__(self, name: str, spelling: Spelling) -> None:
        self._name = name
        self._spelling = spelling
        self.starts = spelling.starts

    def text(self, node: object, types: Types) -> str:
        return self._spelling.field_text(node, self._name, types)

    def read(self, at: TextReader, stops: tuple[str, ...], values: dict[str, object]) -> None:
        values[self._name] = self._spelling.read(at, stops)


class _Literal:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tuple[str, ...](_TOKENS.findall(text))
        behind_space = text[0] == " " and text[1:2].isalpha()
        self.starts = tuple([f" {t}" if behind_space else t for t in self._tokens[:1]])
        self.optional = not self._tokens

    def text(self, node: object, types: Types) -> str:
        return self._text

    def read(self, at: TextReader, stops: tuple[str, ...], values: dict[str, object]) -> None:
        for token in self._tokens:
            at.expect(token)


class _Sequence:
    """Pieces, each with the tokens that may follow it."""

    def __init__(self, pieces: Sequence[_Piece]) -> None:
        self.pieces = tuple(pieces)
        self._behind = [_starts(pieces[place:]) for place in range(1, len(pieces) + 1)]

    def text(self, node: object, types: Types) -> str:
        return "".join([piece.text(node, types) for piece in self.pieces])

    def read(self, at: TextReader, stops: tuple[str, ...], values: dict[str, object]) -> None:
        for piece, (behind, ends) in zip(self.pieces, self._behind, strict=True):
            piece.read(at, (*behind, *stops) if ends else behind, values)


def _starts(pieces: Sequence[_Piece]) -> tuple[tuple[str, ...], bool]:
    """Tokens that the text of ``pieces`` may start with, and whether it may be empty."""
    found: list[str] = []
    for piece in pieces:
        found += piece.starts
        if not piece.optional:
            return tuple(found), False
    return tuple(found), True


class _Group:
    """A part that is omitted if all its fields are ``absent``."""

    optional = True

    def __init__(self, pieces: _Sequence, absent: Mapping[str, object]) -> None:
        self._pieces = pieces
        self._absent = absent
        first = pieces.pieces[0]
        self.starts = first.starts
        self._sign = first.starts[0].lstrip() if isinstance(first, _Literal) else ""

    def text(self, node: object, types: Types) -> str:
        for name, value in self._absent.items():
            if getattr(node, name) != value:
                return self._pieces.text(node, types)
        return ""

    def read(self, at: TextReader, stops: tuple[str, ...], values: dict[str, object]) -> None:
        if at.sees(self._sign) if self._sign else not _is_next(at, stops):
            self._pieces.read(at, stops, values)
        else:
            values |= self._absent


class TextForm(Generic[N]):
    """The form of one kind of node.  ``make`` constructs it from the reader and the spelled fields,
    where that needs more than these."""

    def __init__(
        self,
        kind: type[N],
        template: str,
        spellings: Mapping[str, Spelling],
        make: Callable[..., N] | None = None,
    ) -> None:
        of: type = kind
        self._plain: Callable[..., N] = kind
        self._make = make
        self._fields = {f.name: f for f in fields(of)}
        self._spellings = spellings
        self._items, _ = self._parsed(iter(_PIECES.split(template)))
        self.words = tuple(_WORD.findall(start)[0] for start in self._items.pieces[0].starts)

    def text(self, node: N, types: Types = NO_TYPES) -> str:
        """The text of ``node``; ``types`` are those of tensors that it prints."""
        return self._items.text(node, types)

    def read(self, at: TextReader, stops: tuple[str, ...]) -> N:
        """Parses the next node."""
        values: dict[str, object] = {}
        self._items.read(at, stops, values)
        return self._plain(**values) if self._make is None else self._make(at, **values)

    @property
    def syntax(self) -> Syntax[N]:
        """The spelling of fields that hold such nodes."""
        return Syntax(self.text, self.read)

    def _parsed(self, parts: Iterator[str]) -> tuple[_Sequence, dict[str, object]]:
        """Pieces up to the end of a group, and the values of their fields where it is omitted."""
        found: list[_Piece] = []
        absent: dict[str, object] = {}
        for part in parts:
            if part == "?)":
                break
            if part == "(?":
                found.append(_Group(*self._parsed(parts)))
            elif part.startswith("{"):
                name, _, word = part[1:-1].partition(":")
                annotation = str(self._fields[name].type).removesuffix(" | None")
                found.append(_FieldText(name, self._spellings[word or annotation]))
                absent[name] = self._absent(name)
            elif part:
                found.append(_Literal(part))
        return _Sequence(found), absent

    def _absent(self, name: str) -> object:
        field = self._fields[name]
        if field.default is not MISSING:
            return field.default
        return () if str(field.type).startswith("tuple") else None


class TextForms(Generic[N]):
    """The forms of all kinds of a level's statements, expressions or items.

    Text that begins with no word of a kind is of the kind that ``wordless`` returns.
    """

    def __init__(
        self,
        what: str,
        spellings: Mapping[str, Spelling],
        templates: Mapping[type[N], str],
        makes: Mapping[type[N], Callable[..., N]] = MappingProxyType({}),
        wordless: Callable[[TextReader], type[N]] | None = None,
    ) -> None:
        self._what = what
        self._wordless = wordless
        self._forms = {k: TextForm(k, t, spellings, makes.get(k)) for k, t in templates.items()}
        self._by_word = {word: form for form in self._forms.values() for word in form.words}

    @property
    def words(self) -> tuple[str, ...]:
        """The words that kinds begin with."""
        return tuple(self._by_word)

    def text(self, node: N, types: Types = NO_TYPES) -> str:
        """The text of ``node``, without an end of line."""
        return self._forms[type(node)].text(node, types)

    def read(self, at: TextReader, stops: tuple[str, ...] = ("\n",)) -> N:
        """Parses the next node; :class:`ModelError` if there is none."""
        word = at.next_word()
        form = self._by_word.get(word)
        if form is None and self._wordless is not None:
            form = self._forms[self._wordless(at)]
        if form is None:
            raise at.error(f"unknown {self._what} {word!r}" if word else f"expected a {self._what}")
        return form.read(at, stops)
