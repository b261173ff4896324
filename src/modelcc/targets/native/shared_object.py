"""Linking object files with the system's linker; only ``--emit obj`` and ``so`` need one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from modelcc.ir.op import ModelError


def link_shared(objects: Sequence[bytes], *, shared: bool) -> bytes:
    """One file of all ``objects``: a shared library, or (not ``shared``) a relocatable object.

    A single object is itself.  :class:`ModelError` if there is no linker or it fails.
    """
    if len(objects) == 1 and not shared:
        return objects[0]
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise ModelError(
            "there is no linker on this machine to join the object files",
            (),
            "install a C compiler, or write the modules one by one with -o FOLDER/",
        )
    mode = ["-shared", "-Wl,-soname,model.so"] if shared else ["-r", "-nostdlib"]
    with tempfile.TemporaryDirectory() as folder:
        names: list[str] = []
        for number, contents in enumerate(objects):
            path = Path(folder, f"part{number}.o")
            path.write_bytes(contents)
            names.append(str(path))
        result = Path(folder, "linked")
        command = [compiler, *mode, "-o", str(result), *names, *(["-lm"] if shared else [])]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ModelError(f"{compiler} cannot link the object files: {done.stderr.strip()}")
        return result.read_bytes()
