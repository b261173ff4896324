"""Libraries that compiled code calls: located, opened and initialised."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from modelcc.artifact.manifest import LibrarySpec, Manifest
from modelcc.runtime.errors import LoadError


def addresses(libraries: Iterable[LibrarySpec]) -> dict[str, int]:
    """Addresses of the functions used of ``libraries``, which stay loaded in this process.

    :class:`LoadError` says what to install if one is missing, or lacks a function.
    """
    found: dict[str, int] = {}
    for spec in libraries:
        library = open_library(spec)
        for name, value in spec.setup:
            function_of(library, spec, name)(value)
        functions = ((name, function_of(library, spec, name)) for name in spec.symbols)
        found |= {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in functions}
    return found


def open_library(spec: LibrarySpec) -> ctypes.CDLL:
    """The first of its files that exists; :class:`LoadError` if none does."""
    faults: list[str] = []
    for file in spec.files:
        for path in _paths(file):
            try:
                return ctypes.CDLL(path)
            except OSError as error:
                faults.append(str(error))
    where = "; ".join(faults) or f"no {' and no '.join(spec.files)}"
    install = f"; install it with: pip install {spec.package}" if spec.package else ""
    raise LoadError(f"the library {spec.name} is not there ({where}){install}")


def at_path(spec: LibrarySpec, path: str) -> LibrarySpec:
    """The library in the file ``path``, and nowhere else; unchanged if that is empty."""
    return replace(spec, files=(str(Path(path).absolute()),)) if path else spec


def with_paths(manifest: Manifest, paths: Mapping[str, str]) -> Manifest:
    """``manifest`` with these libraries at other paths; :class:`LoadError` if it does not call
    one."""
    for name in paths.keys() - {spec.name for spec in manifest.libraries}:
        raise LoadError(f"the model calls no library {name}")
    found = (at_path(spec, paths.get(spec.name, "")) for spec in manifest.libraries)
    return replace(manifest, libraries=tuple(found))


def _paths(file: str) -> Iterator[str]:
    """Names passed to the system's loader."""
    if "/" not in file or Path(file).is_absolute():
        yield file
        return
    package, _, rest = file.partition("/")
    found = find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found else ():
        yield str(Path(folder, rest))


def function_of(library: ctypes.CDLL, spec: LibrarySpec, name: str) -> Any:
    """A function of an open library, whatever its prefix there; :class:`LoadError` if it is
    missing."""
    for prefix in spec.prefixes:
        try:
            return library[f"{prefix}{name}"]
        except AttributeError:
            continue
    raise LoadError(f"the library {spec.name} ({library._name}) has no function {name}")
