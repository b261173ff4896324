"""Where commands write: never over what they read, and under a name that fits what it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from pathlib import Path
from types import MappingProxyType

from modelcc.artifact.file import MANIFEST
from modelcc.ir.errors import ModelError

ARTIFACT = "artifact"
"""What ``compile`` writes unless another form is asked for."""

_SUFFIXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        ".mcc": (ARTIFACT,),
        ".o": ("obj",),
        ".so": ("so",),
        ".ll": ("llvm",),
        ".s": ("asm",),
        ".c": ("c",),
        ".onnx": ("onnx",),
        ".mcb": ("bytecode",),
        ".npz": (),
        ".npy": (),
        ".html": (),
    }
)
"""Which forms a file of each suffix may hold; other suffixes may hold any."""


def check_suffix(path: Path | None, form: str) -> None:
    """:class:`ModelError` if the name ``path`` says that something else than ``form`` is in it."""
    forms = _SUFFIXES.get("" if path is None else path.suffix)
    if path is None or forms is None or form in forms:
        return
    own = next((suffix for suffix, held in _SUFFIXES.items() if form in held), "another suffix")
    what = "a compiled model" if form == ARTIFACT else f"the form {form!r}"
    asked = f"--emit {forms[0]}" if forms and forms[0] != ARTIFACT else "no --emit and no --from"
    instead = f", or give {asked}" if forms else ""
    hint = f"name it {path.with_suffix(own).name}{instead}" if own[0] == "." else f"use {own}"
    raise ModelError(f"{path} would hold {what}, which its name does not say", (), hint)


def check_outputs(outputs: Iterable[Path | None], inputs: Sequence[Path]) -> None:
    """:class:`ModelError` if one of ``outputs`` is the same file as one of ``inputs``, by whatever
    name or link."""
    for output, source in product(outputs, inputs):
        if output is not None and _is_same(output, source):
            raise ModelError(
                f"{output} is the file {source} that is read, and would be overwritten",
                (),
                "give another name with -o",
            )


def check_apart(paths: Iterable[Path | None]) -> None:
    """:class:`ModelError` if two of the files that are written are one."""
    named = [path for path in paths if path is not None]
    for one, other in combinations(named, 2):
        if one.resolve() == other.resolve():
            hint = "give each a name of its own"
            raise ModelError(f"{one} and {other} are the same file, to be written twice", (), hint)


def is_artifact(path: Path) -> bool:
    """Whether the file ``path`` begins as a compiled model does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        start = file.read(30 + len(MANIFEST))
    return start.startswith(b"PK\3\4") and start.endswith(MANIFEST.encode())


def may_be_read(output: Path | None) -> bool:
    """Whether ``output`` is there and no artifact, so that it may belong to a model."""
    return output is not None and output.is_file() and not is_artifact(output)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:  # one of them is not there
        return False
