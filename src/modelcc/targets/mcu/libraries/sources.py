"""Sources of a vendor's library that a program needs: those of the functions that it calls."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from modelcc.targets.mcu.libraries.choice import INCLUDE

_FOLDER = "Source"
_CALL = re.compile(r"\b(arm_\w+)\s*\(")
_DEFINITION = re.compile(r"^[a-z_A-Z][^;(){}#]*?\b(arm_\w+)\([^;{]*\)\s*\{", re.MULTILINE)


def include_flags(libraries: Iterable[tuple[str, str]]) -> list[str]:
    """Include options for the headers of libraries."""
    return [f"-I{Path(path, INCLUDE)}" for _, path in libraries]


def sources_of(libraries: Iterable[tuple[str, str]], texts: Iterable[str]) -> list[Path]:
    """Files that define the functions called in ``texts``, and their callees."""
    files = [file for _, path in libraries for file in sorted(Path(path, _FOLDER).rglob("*.c"))]
    written = {file: file.read_text(errors="replace") for file in files}
    home = {name: file for file, text in written.items() for name in _DEFINITION.findall(text)}
    called = _called(texts)
    found: dict[Path, None] = {}
    while called:
        file = home.get(called.pop())
        if file is not None and file not in found:
            found[file] = None
            called |= _called([written[file]])
    return sorted(found)


def _called(texts: Iterable[str]) -> set[str]:
    def names() -> Iterator[str]:
        for text in texts:
            yield from _CALL.findall(text)

    return set(names())
