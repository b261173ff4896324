"""Identifiers: any name of the compiler's as a C name that nothing else has."""

from __future__ import annotations

import re

_KEYWORDS = frozenset(
    [
        "asm",
        "auto",
        "bool",
        "break",
        "case",
        "char",
        "const",
        "continue",
        "default",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "false",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "main",
        "register",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "true",
        "typedef",
        "typeof",
        "union",
        "unix",
        "linux",
        "unsigned",
        "void",
        "volatile",
        "while",
        "NAN",
        "INFINITY",
        "NULL",
        "I",
        "abs",
        "div",
        "exit",
        "free",
        "malloc",
        "memcpy",
        "memmove",
        "memset",
        "y0",
        "y1",
        "yn",
        "j0",
        "j1",
        "jn",
    ]
)
_OURS = re.compile(r"(mcc|MCC)_.*|(f16|bf16|f32|f64|[iu](8|16|32|64))(x\d+)?(_.*)?")
_FOREIGN = re.compile(r"[^A-Za-z0-9_]")


def identifier(name: str) -> str:
    """``name`` spelled with the letters C allows; no keyword, no name of the emitter's own."""
    spelled = _FOREIGN.sub("_", name) or "_"
    if spelled[0].isdigit() or spelled[0] == "_":
        spelled = f"v{spelled}"
    if spelled in _KEYWORDS or _OURS.fullmatch(spelled):
        return f"{spelled}_"
    return spelled


def external(name: str) -> tuple[str, str]:
    """Spelling of a name that others link to, and the label that keeps it where C cannot."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is not None
    if plain and name not in _KEYWORDS and not _OURS.fullmatch(name):
        return name, ""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f"{identifier(name)}", f' __asm__("{escaped}")'


def comment(text: str) -> str:
    """Text that cannot end a C comment early."""
    return text.replace("*/", "* /").replace("/*", "/ *")
