"""Generated C as a shared library in this process."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from modelcc.targets.c.toolchain import CCompiler


class CLibrary:
    """What C files define.  The system's loader takes libraries of one path for the same."""

    def __init__(self, texts: Sequence[str], compiler: CCompiler, folder: Path) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as own:
            names = [f"model{number}.c" for number in range(len(texts))]
            for name, text in zip(names, texts, strict=True):
                Path(own, name).write_text(text)
            command = [*compiler.command, *compiler.flags, "-o", "library.so", *names]
            subprocess.run([*command, "-shared", "-lm"], check=True, cwd=own)
            self._library = ctypes.CDLL(str(Path(own, "library.so")))

    def address(self, name: str) -> int:
        return ctypes.cast(self._library[name], ctypes.c_void_p).value or 0
