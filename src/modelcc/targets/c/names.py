"""Identifiers: any name of the compiler's as a C name that nothing else has."""

from __future__ import annotations

import hashlib
import re

_WORDS = """
asm auto bool break case char const continue default do double else enum extern false float for
goto if inline int long main register restrict return short signed sizeof static struct switch true
typedef typeof union unix linux unsigned void volatile while NULL memcpy memmove
"""
_KEYWORDS = frozenset(_WORDS.split())
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


def symbol(name: str) -> str:
    """Spelling of a function that others link to; different names are spelled differently."""
    spelled = identifier(name)
    if spelled == name:
        return name
    return f"{spelled}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def comment(text: str) -> str:
    """Text that cannot end a C comment early."""
    return text.replace("*/", "* /").replace("/*", "/ *")
