"""Mapping of the compiler's names to unique C identifiers."""

from __future__ import annotations

import hashlib
import re

_WORDS = """
asm auto bool break case char const continue default do double else enum extern false float for
goto if inline int long main register restrict return short signed sizeof static struct switch true
typedef typeof union unix linux unsigned void volatile while NULL memcpy memmove
signgam
"""
_FUNCTIONS = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim
floor fma fmax fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2
logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo rint round scalbln
scalbn sin sinh sqrt tan tanh tgamma trunc y0 y1 yn exp10 gamma drem finite isinf isnan scalb sincos
significand pow10
"""
"""Functions of math.h, with extensions of C libraries."""

_KEYWORDS = frozenset(_WORDS.split()) | {
    name + suffix for name in _FUNCTIONS.split() for suffix in ("", "f", "l")
}
_OURS = re.compile(r"(mcc|MCC)_.*|(f16|bf16|f32|f64|[iu](8|16|32|64))(x\d+)?(_.*)?")
_MACROS = re.compile(
    r"U?INT(|_LEAST|_FAST)(8|16|32|64)_(C|MIN|MAX)|(U?INT(PTR|MAX)|PTRDIFF|SIG_ATOMIC|WCHAR|WINT)_"
    r"(C|MIN|MAX)|SIZE_MAX|offsetof|NAN|INFINITY|HUGE_VAL[FL]?|(FP|MATH)_.*|math_errhandling"
)
"""Macros of the headers that every file includes."""
_FOREIGN = re.compile(r"[^A-Za-z0-9_]")
_SECOND_MARK = re.compile(r"(?<=\?)\?")
"""Two question marks may start a trigraph."""


def identifier(name: str) -> str:
    """``name`` spelled with the characters C allows; neither a keyword nor a name of the
    emitter."""
    spelled = _FOREIGN.sub("_", name) or "_"
    if spelled[0].isdigit() or spelled[0] == "_":
        spelled = f"v{spelled}"
    if spelled in _KEYWORDS or _OURS.fullmatch(spelled) or _MACROS.fullmatch(spelled):
        return f"{spelled}_"
    return spelled


def symbol(name: str) -> str:
    """Spelling of an external symbol; different names are spelled differently."""
    spelled = identifier(name)
    if spelled == name:
        return name
    return f"{spelled}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def comment(text: str) -> str:
    """Text that can neither end a C comment early nor be displayed misleadingly."""
    visible = "".join(c if _is_plain(c) else _escaped(c) for c in text)
    return _SECOND_MARK.sub(" ?", visible.replace("*/", "* /").replace("/*", "/ *"))


def string_body(text: str) -> str:
    """The body of a C string literal with the contents ``text``, on one line."""
    return _SECOND_MARK.sub(r"\?", "".join(map(_in_string, text)))


def _in_string(c: str) -> str:
    if c in '"\\':
        return f"\\{c}"
    return c if _is_plain(c) else "".join(f"\\{byte:03o}" for byte in _encoded(c))


def _is_plain(c: str) -> bool:
    """Whether a character is displayed as it is: no line terminator, no change of text
    direction."""
    return c == " " or c.isprintable()


def _escaped(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}"


def _encoded(c: str) -> bytes:
    return c.encode("utf-8", "surrogateescape")
