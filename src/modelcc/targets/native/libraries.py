"""Libraries that a user requests: their files, and their description in an artifact."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

from modelcc.artifact.manifest import LibrarySpec
from modelcc.ir.errors import ModelError
from modelcc.ir.library import Callee, LibraryFunction
from modelcc.runtime.errors import LoadError
from modelcc.runtime.linking.libraries import at_path, function_of, open_library
from modelcc.targets.cpu.libraries import LIBRARIES, WIDE

Asked = Sequence[tuple[str, str]]
"""Names and paths, empty to search for a library."""


def check_libraries(asked: Asked) -> None:
    """Raises :class:`ModelError` if one of these is missing, or cannot be called by kernels."""
    for name, path in asked:
        _versioned(name, path)


def called_libraries(callees: Sequence[Callee], asked: Asked) -> tuple[LibrarySpec, ...]:
    """The description in an artifact of the libraries of ``callees``."""
    paths, symbols = dict(asked), dict[str, dict[str, None]]()
    for callee in callees:
        if isinstance(callee, LibraryFunction):
            symbols.setdefault(callee.call.library, {})[callee.call.symbol] = None
    return tuple(
        replace(_versioned(name, paths.get(name, "")), symbols=tuple(own))
        for name, own in symbols.items()
    )


def _versioned(name: str, path: str) -> LibrarySpec:
    spec = at_path(LIBRARIES[name].spec, path)
    try:
        library = open_library(spec)
        tell = function_of(library, spec, LIBRARIES[name].tell)
    except LoadError as error:
        hint = f"or give its path: --library {name}=/path/to/lib{name}.so"
        raise ModelError(str(error), (), hint) from error
    tell.restype = ctypes.c_char_p
    words = str(tell().decode()).split()
    if WIDE in words:
        raise ModelError(
            f"the library {name} in {path} takes integers of 64 bits", (), "give one of 32 bits"
        )
    return replace(spec, version=words[1])
