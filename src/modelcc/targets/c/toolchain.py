"""C text in, machine code out: the C compiler of the system."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from modelcc.ir.errors import Error
from modelcc.targets.c.dialect import GNU, CDialect

FUSED = ("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
"""Flags that generated code needs of any compiler: a*b+c may be fused, and errno and traps are
unused."""


def semantics(dialect: CDialect) -> tuple[str, ...]:
    """All flags that affect the semantics of generated code."""
    return f"-std={dialect.standard}", *FUSED


_MODE = ("-fPIC", "-Wno-psabi", "-fno-stack-protector")
_CANDIDATES = (("cc",), ("gcc",), ("clang",), ("python-zig", "cc"), ("zig", "cc"))


class ToolchainError(Error):
    """There is no C compiler, or it rejects a file; the message says what to do."""


@dataclass(frozen=True)
class CCompiler:
    """A C compiler: its command, and the first line of its version.

    ``arch`` is its ``-march``; ``optimize`` 0 to 3.
    """

    command: tuple[str, ...]
    version: str
    arch: str = "native"
    optimize: int = 2
    dialect: CDialect = GNU

    @property
    def flags(self) -> tuple[str, ...]:
        """Options for every file."""
        return (f"-O{self.optimize}", f"-march={self.arch}", *semantics(self.dialect), *_MODE)

    def compile_object(self, text: str) -> bytes:
        """The object file of a C file; :class:`ToolchainError` if the compiler rejects it."""
        return self._run(text, "-c")

    def assembly(self, text: str) -> str:
        """The C file as assembly text."""
        return self._run(text, "-S").decode()

    def key(self, *texts: str) -> str:
        """SHA-256, in hexadecimal, of all that determines the results of ``texts``."""
        parts = (*self.command, self.version, *self.flags, *texts)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _run(self, text: str, mode: str) -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder, "result")
            Path(folder, "model0.c").write_text(text)
            command = [*self.command, *self.flags, "-o", str(result), "model0.c", mode]
            done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
            if done.returncode:
                first = "\n".join(done.stderr.strip().splitlines()[:8])
                raise ToolchainError(
                    f"{' '.join(self.command)} ({self.version}) cannot compile the generated C:\n"
                    f"{first}\nGCC 12 or Clang 12 is needed; name another compiler, "
                    "or use the target 'native', which needs none"
                )
            return result.read_bytes()


def find_compiler(
    command: str = "", arch: str = "native", optimize: int = 2, dialect: CDialect = GNU
) -> CCompiler:
    """The compiler ``command`` (a path or name, with arguments), or else the system's.

    Raises :class:`ToolchainError` if there is none.
    """
    asked = (tuple(command.split()),) if command else _CANDIDATES
    for words in asked:
        path = shutil.which(words[0])
        if path is not None:
            spelled = (path, *words[1:])
            return CCompiler(spelled, _version(spelled), arch, optimize, dialect)
    looked = command or ", ".join(dict.fromkeys(words[0] for words in _CANDIDATES))
    raise ToolchainError(
        f"there is no C compiler on this machine (looked for {looked}); install gcc or clang, "
        "or the Python package ziglang, or use the target 'native', which needs none"
    )


def _version(command: Sequence[str]) -> str:
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolchainError(f"{' '.join(command)} does not run: {done.stderr.strip()}")
    return done.stdout.partition("\n")[0]
