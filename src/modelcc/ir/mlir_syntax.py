"""Lexical pieces of MLIR's generic form: names, strings, numbers, types, and a scanner.

Grammar: https://mlir.llvm.org/docs/LangRef/ .  Value names may be any text here, so characters
that MLIR does not allow are escaped as ``$`` and two hexadecimal digits per UTF-8 byte.  A slash is
a lone ``$`` where two hexadecimal digits do not follow: ``/fc1:0`` is ``%$fc1$3A0``.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index, parse_index
from modelcc.ir.types import DTYPES, Array, DType, Layout, Part, TensorType

ABSENT: Final = "$none"
"""Spelling of an absent operand; no value is spelled so, since ``no`` is not hexadecimal."""

_SMALL_FLOATS: Final = {
    "f4e2m1": "f4E2M1FN",
    "f6e2m3": "f6E2M3FN",
    "f6e3m2": "f6E3M2FN",
    "f8e3m4": "f8E3M4",
    "f8e4m3": "f8E4M3",
    "f8e4m3b11fnuz": "f8E4M3B11FNUZ",
    "f8e4m3fn": "f8E4M3FN",
    "f8e4m3fnuz": "f8E4M3FNUZ",
    "f8e5m2": "f8E5M2",
    "f8e5m2fnuz": "f8E5M2FNUZ",
    "f8e8m0": "f8E8M0FNU",
}


def _element_text(dtype: DType) -> str:
    match dtype.kind:
        case "float":
            return _SMALL_FLOATS.get(dtype.name, dtype.name)
        case "int":
            return f"i{dtype.bits}"
        case "uint":
            return f"ui{dtype.bits}"
        case "bool":
            return "i1"
        case "complex":
            return f"complex<f{dtype.bits // 2}>"
        case "string":
            return "!mcc.string"


ELEMENT_TEXT: Mapping[DType, str] = MappingProxyType({d: _element_text(d) for d in DTYPES.values()})
ELEMENT_TYPES: Mapping[str, DType] = MappingProxyType({t: d for d, t in ELEMENT_TEXT.items()})

_BARE: Final = frozenset(string.ascii_letters + string.digits + "._-")
_BARE_NAME: Final = re.compile(r"[A-Za-z._-][A-Za-z0-9._-]*")
_BARE_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")
_ESCAPED: Final = re.compile(r"\\([0-9A-Fa-f]{2}|[\"\\nt])")
_SLASH: Final = re.compile(r"\$2F(?![0-9A-F]{2})")
_DEPTH: Final = re.compile(r"^\$in[0-9]+\.")
_NAME_ESCAPE: Final = re.compile(rb"\$([0-9A-F]{2})?")


def value_text(name: str, depth: int = 0) -> str:
    """A value name as an SSA identifier, ``%`` included; ``""`` is an absent operand.

    Names in a sub-graph at ``depth`` are spelled ``%$in1.x``: MLIR lets regions see outer values.
    """
    prefix = f"%$in{depth}." if depth else "%"
    if not name:
        return prefix + ABSENT
    if _BARE_NAME.fullmatch(name) or (name.isascii() and name.isdigit()):
        return prefix + name
    first, rest = _escape(name[0], _BARE - set(string.digits)), _escape(name[1:], _BARE)
    spelled = _SLASH.sub("$", first + rest)
    reserved = spelled == ABSENT or _DEPTH.match(spelled)
    return f"{prefix}$2F{spelled[1:]}" if reserved else prefix + spelled


def _escape(text: str, allowed: frozenset[str]) -> str:
    return "".join(
        c if c in allowed else "".join(f"${byte:02X}" for byte in c.encode("utf-8")) for c in text
    )


def value_name(spelling: str) -> str:
    """The inverse of :func:`value_text`, without the ``%``."""
    spelling = _DEPTH.sub("", spelling)
    if spelling == ABSENT:
        return ""
    raw = _NAME_ESCAPE.sub(lambda m: bytes((int(m[1] or b"2F", 16),)), spelling.encode("utf-8"))
    return raw.decode("utf-8")


def string_text(text: str) -> str:
    """A quoted string; quotes, backslashes and control characters are escaped."""

    def one(c: str) -> str:
        if c in '"\\':
            return "\\" + c
        return c if c.isprintable() else "".join(f"\\{b:02X}" for b in c.encode("utf-8"))

    plain = text.isprintable() and '"' not in text and "\\" not in text
    return f'"{text}"' if plain else '"' + "".join(map(one, text)) + '"'


def string_value(quoted: str) -> str:
    """The inverse of :func:`string_text`."""
    plain: Mapping[str, bytes] = {"n": b"\n", "t": b"\t", '"': b'"', "\\": b"\\"}
    pieces: list[bytes] = []
    end = 1
    for m in _ESCAPED.finditer(quoted):
        pieces.append(quoted[end : m.start()].encode("utf-8"))
        pieces.append(plain.get(m[1]) or bytes((int(m[1], 16),)))
        end = m.end()
    return (b"".join(pieces) + quoted[end:-1].encode("utf-8")).decode("utf-8")


def key_text(key: str) -> str:
    """A dictionary key: bare where MLIR allows it, else quoted."""
    return key if _BARE_KEY.fullmatch(key) else string_text(key)


def float_text(value: float) -> str:
    """An f64 literal that reads back exactly; infinities and NaN by their bits."""
    if not np.isfinite(value):
        return f"0x{np.float64(value).view(np.uint64):016X} : f64"
    return _with_point(float.__repr__(value))


def _with_point(digits: str) -> str:
    mantissa, e, exponent = digits.partition("e")
    return (mantissa if "." in mantissa else mantissa + ".0") + e + exponent


def type_text(type: TensorType) -> str:
    """A tensor type; named extents are ``?``, spelled in the encoding attribute, in order.

    ``tensor<?x3xf32, ["batch"]>``; with a layout, ``{dims = ["batch"], layout = "<d0 d1>"}``.
    """
    dims = "".join(f"{d if isinstance(d, int) else '?'}x" for d in type.shape)
    named = ", ".join(string_text(str(d)) for d in type.shape if not isinstance(d, int))
    encoding = f", [{named}]" if named else ""
    if type.layout is not None:
        encoding = f", {{dims = [{named}], layout = {string_text(str(type.layout))}}}"
    return f"tensor<{dims}{ELEMENT_TEXT[type.dtype]}{encoding}>"


def element_literal(value: Array) -> str:
    """One element as a literal inside ``dense<…>``."""
    if value.dtype == np.bool_:
        return "true" if value else "false"
    if value.dtype.kind in "iu" or value.dtype.name.startswith(("int", "uint")):
        return str(int(value))
    if not np.isfinite(value.astype(np.float64)):
        bits = value.dtype.itemsize * 8
        return f"0x{int(value.view(f'u{bits // 8}')):0{bits // 4}X}"
    return _with_point(str(value[()]))


def dense_text(data: Array) -> str:
    """Array contents as MLIR spells them: nested lists, or one element if all are the same."""
    if data.size == 0:
        return ""
    first = data.reshape(-1)[:1]
    if data.tobytes() == np.broadcast_to(first, data.size).tobytes():
        return element_literal(first.reshape(()))
    return _nested(data)


def _nested(data: Array) -> str:
    if data.ndim == 0:
        return element_literal(data)
    return "[" + ", ".join(_nested(np.asarray(item)) for item in data) + "]"


_SPACE: Final = re.compile(r"(?:\s+|//[^\n]*)*")
_PATTERNS: Final = {
    "string": re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    "value": re.compile(r"%([A-Za-z0-9._$-]+)"),
    "key": re.compile(r'[A-Za-z_][A-Za-z0-9_$.]*|"(?:[^"\\\n]|\\.)*"'),
    "number": re.compile(r"0x[0-9A-Fa-f]+|-?\d+(?:\.\d*(?:[eE][-+]?\d+)?)?"),
    "dims": re.compile(r"(?:(?:\?|\d+)x)*"),
    "element": re.compile(r"complex<\w+>|![\w.]+|[A-Za-z]\w*"),
    "opaque": re.compile(r"#mcc\.([a-z]+)<"),
    "layout": re.compile(r"<(?:d\d[^>]*)?>"),
    "label": re.compile(r"\^\w+"),
    "literal": re.compile(r"true|false|0x[0-9A-Fa-f]+|-?\d+(?:\.\d*(?:[eE][-+]?\d+)?)?"),
}

_INDEX_PIECE: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|[\w.+*%()/,-]| ')


class Scanner:
    """A position in MLIR text; errors are :class:`ModelError` with line and column."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self._skip()

    def _skip(self) -> None:
        match = _SPACE.match(self.text, self.end)
        self.end = match.end() if match else self.end

    def error(self, message: str) -> ModelError:
        """An error at this position."""
        line = self.text.count("\n", 0, self.end) + 1
        column = self.end - self.text.rfind("\n", 0, self.end)
        rest = self.text[self.end : self.end + 24].split("\n")[0]
        found = f"; found {rest!r}" if rest else "; the text ends"
        return ModelError(message + found, (f"line {line}, column {column}",))

    def accept(self, literal: str) -> bool:
        """Consumes ``literal`` if it is next."""
        if not self.text.startswith(literal, self.end):
            return False
        self.end += len(literal)
        self._skip()
        return True

    def expect(self, literal: str) -> None:
        """Consumes ``literal``, which must be next."""
        if not self.accept(literal):
            raise self.error(f"expected {literal!r}")

    def try_take(self, kind: str) -> str | None:
        """The text of a ``kind`` of token if it is next (its group if it has one)."""
        match = _PATTERNS[kind].match(self.text, self.end)
        if match is None:
            return None
        self.end = match.end()
        self._skip()
        return match[match.lastindex or 0]

    def take(self, kind: str) -> str:
        """The text of a ``kind`` of token, which must be next."""
        found = self.try_take(kind)
        if found is None:
            raise self.error(f"expected a {kind}")
        return found

    def string(self) -> str:
        """A quoted string, unescaped."""
        return string_value(self.take("string"))

    def key(self) -> str:
        """A dictionary key."""
        text = self.take("key")
        return string_value(text) if text.startswith('"') else text

    def index(self) -> Index:
        """A quoted index expression."""
        text = self.string()
        try:
            return parse_index(text)
        except SyntaxError as error:
            raise self.error(f"{text!r} is no index expression: {error.msg}") from error

    def bare_index(self) -> Index:
        """An index expression without quotes; the longest prefix that is one."""
        start, end, depth = self.end, self.end, 0
        while (piece := _INDEX_PIECE.match(self.text, end)) is not None:
            depth += (piece[0] == "(") - (piece[0] == ")")
            if depth < 0 or (depth == 0 and piece[0] == ","):
                break
            end = piece.end()
        text = self.text[start:end].strip()
        try:
            found = parse_index(text)
        except SyntaxError as error:
            raise self.error(f"{text!r} is no index expression: {error.msg}") from error
        self.end = end
        self._skip()
        return found

    def element(self) -> DType:
        """An element type."""
        name = self.take("element")
        found = ELEMENT_TYPES.get(name)
        if found is None:
            raise self.error(f"unknown element type {name!r}")
        return found

    def type(self) -> TensorType:
        """A tensor type with its encoding."""
        self.expect("tensor<")
        extents = self.take("dims").split("x")[:-1]
        dtype = self.element()
        named: list[Index] = []
        layout = None
        if self.accept(","):
            named, layout = self._encoding()
        self.expect(">")
        if len(named) != extents.count("?"):
            raise self.error(f"{extents.count('?')} extents are named but {len(named)} names given")
        names = iter(named)
        shape = tuple(next(names) if e == "?" else int(e) for e in extents)
        return TensorType(shape, dtype, layout)

    def _encoding(self) -> tuple[list[Index], Layout | None]:
        if not self.accept("{"):
            return self._names(), None
        self.expect("dims")
        self.expect("=")
        named = self._names()
        self.expect(",")
        self.expect("layout")
        self.expect("=")
        layout = self.layout(self.string())
        self.expect("}")
        return named, layout

    def _names(self) -> list[Index]:
        self.expect("[")
        found: list[Index] = []
        while not self.accept("]"):
            found.append(self.index())
            self.accept(",")
        return found

    def layout(self, text: str) -> Layout:
        """The layout that ``text`` spells, the inverse of its ``str``."""
        match = re.fullmatch(
            r"<((?:d\d+(?:/\d+)?(?:%\d+)? ?)*)(?:halo([\d:,]+)(?: fill(-?\d+))?)?>", text
        )
        if match is None:
            raise self.error(f"{text!r} is no layout")
        found = re.findall(r"d(\d+)(?:/(\d+))?(?:%(\d+))?", match[1])
        parts = tuple(Part(int(a), int(d or 1), int(m) if m else None) for a, d, m in found)
        rank = max((p.axis + 1 for p in parts), default=0)
        if match[2] is None:
            return Layout(parts, ((0, 0),) * rank)
        sides = [side.split(":") for side in match[2].split(",")]
        return Layout(parts, tuple((int(b), int(a)) for b, a in sides), int(match[3] or 0))
