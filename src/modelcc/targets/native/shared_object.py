"""Linking object files with the system's linker; only ``--emit obj`` and ``so`` need one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from modelcc.ir.errors import ModelError


def link_objects(objects: Sequence[bytes]) -> bytes:
    """One relocatable object of all ``objects``; raises like :func:`link_library`."""
    return objects[0] if len(objects) == 1 else _linked(objects, ("-r", "-nostdlib"), ())


def link_library(objects: Sequence[bytes]) -> bytes:
    """A shared library of ``objects``; :class:`ModelError` if there is no linker or it fails."""
    return _linked(objects, ("-shared",), ("-lm",))


def _linked(objects: Sequence[bytes], before: Sequence[str], after: Sequence[str]) -> bytes:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise ModelError(
            "there is no linker on this machine to join the object files",
            (),
            "install a C compiler; artifacts (.mcc) need none",
        )
    with tempfile.TemporaryDirectory() as folder:
        names: list[str] = []
        for number, contents in enumerate(objects):
            path = Path(folder, f"part{number}.o")
            path.write_bytes(contents)
            names.append(str(path))
        result = Path(folder, "linked")
        command = [compiler, *before, "-o", str(result), *names, *after]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ModelError(f"{compiler} cannot link the object files: {done.stderr.strip()}")
        return result.read_bytes()
