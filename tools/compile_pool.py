"""Makes the LLVM text of the thread pool from ``src/modelcc/runtime/pool.c``.

    pip install -e '.[pool]' && python -m tools.compile_pool

Users have no C compiler but LLVM, so the text is a part of the package.  It comes from the Clang of
the Python package ziglang, of the version that the extra ``pool`` names: it brings the headers of
every architecture, so the text is the same wherever it is made.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from modelcc.runtime.pool import ARCHITECTURES

RUNTIME = Path(__file__).resolve().parent.parent / "src" / "modelcc" / "runtime"

SHARED = "pool.ll"
"""What is the same on every architecture; ``pool_ARCHITECTURE.ll`` has the rest."""

HEAD = "; Made of pool.c by tools/compile_pool.py; not to be changed by hand.\n"

FLAGS = (
    *("-O1", "-fno-inline", "-fno-unroll-loops", "-fno-discard-value-names"),
    *("-fno-sanitize=all", "-g0"),
)
"""Functions stay as they are in C: inlining is the business of who compiles the text."""

GLIBC = "2.17"
"""The oldest that Python's wheels are made for."""

_PROMISES = re.compile(
    r" (?:noundef|nonnull|noalias|readonly|writeonly|captures\([^)]*\)|range\([^)]*\)|fastcc|"
    r"dereferenceable\(\d+\)|immarg|local_unnamed_addr|unnamed_addr|#\d+)(?=[ ,)\n])"
)
"""What LLVM finds by itself, or need not know."""

_REST = re.compile(r", !\S+ !\d+| +; preds = .*$|(?<= )tail (?=call)", re.MULTILINE)
_DEFINITION = re.compile(r"^%\S+ = type .*$|^declare .*$|^define (?s:.*?)^}$", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_MARK = re.compile(r"^; sha256 (\w+)$", re.MULTILINE)


def definitions(text: str) -> list[str]:
    """Types and declarations, then functions, of LLVM text, as they would be written by hand."""
    found = _DEFINITION.findall(_PROMISES.sub("", _REST.sub("", text)))
    closed = [each.replace("\n\n", "\n") + "\n" for each in found]
    return sorted(closed, key=lambda each: ("%", "declare", "define").index(_kind(each)))


def _kind(definition: str) -> str:
    return definition[0] if definition[0] == "%" else definition.split()[0]


def compiled(architecture: str) -> list[str]:
    """The definitions that Clang makes of the pool for Linux on ``architecture``."""
    with TemporaryDirectory() as folder:
        result = Path(folder, "pool.ll")
        target = ("-target", f"{architecture}-linux-gnu.{GLIBC}")
        files = ("-S", "-emit-llvm", str(RUNTIME / "pool.c"), "-o", str(result))
        command = (sys.executable, "-m", "ziglang", "cc", *target, *FLAGS, *files)
        subprocess.run(command, check=True, capture_output=True)
        return definitions(result.read_text("utf-8"))


def made() -> dict[str, str]:
    """The files of the package, by name."""
    parts = {architecture: compiled(architecture) for architecture in ARCHITECTURES}
    first, *others = parts.values()
    common = [each for each in first if all(each in other for other in others)]
    texts = {SHARED: _joined(common)}
    for architecture, part in parts.items():
        texts[_own(architecture)] = _joined([each for each in part if each not in common])
    mark = f"; sha256 {fingerprint(source(), texts)}\n"
    return {name: HEAD + (mark if name == SHARED else "") + text for name, text in texts.items()}


def _joined(definitions: Sequence[str]) -> str:
    return "".join("\n" * each.startswith("define") + each for each in definitions)


def _own(architecture: str) -> str:
    return f"pool_{architecture}.ll"


def source() -> str:
    """The pool in C."""
    return "".join((RUNTIME / name).read_text("utf-8") for name in ("pool.h", "pool.c"))


def fingerprint(source: str, texts: Mapping[str, str]) -> str:
    """A hash of the C and of what was made of it, whatever their comments say."""
    words = " ".join(_COMMENT.sub(" ", source).split())
    lines = (line for name in sorted(texts) for line in texts[name].splitlines())
    rest = (line for line in lines if line and not line.startswith(";"))
    return hashlib.sha256("\n".join((words, *rest)).encode()).hexdigest()


def packaged() -> dict[str, str]:
    """The files as they are."""
    names = (SHARED, *map(_own, ARCHITECTURES))
    return {name: (RUNTIME / name).read_text("utf-8") for name in names}


def marked(texts: Mapping[str, str]) -> str:
    """The fingerprint that is written in the files."""
    found = _MARK.search(texts[SHARED])
    return found.group(1) if found else ""


def main() -> None:
    """Writes the files."""
    for name, text in made().items():
        (RUNTIME / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
