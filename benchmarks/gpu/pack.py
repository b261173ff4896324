"""The archive for a machine with a GPU: ``python -m benchmarks.gpu.pack FILE FOLDER`` unpacks it
there.  Needs only the standard library.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

KINDS = "*.seeded.onnx", "*.npz", "*.mcc"
BUILT = re.compile(r"_x\d+\.mcc$")
"""Suffix of the names of models that were compiled here; they are excluded."""

GPU, SITE = "gpu", "site"
"""Folders in the archive: prepared files, and packages."""


def pack(folder: Path, archive: Path, wheels: Sequence[Path] = ()) -> int:
    """Writes ``archive`` of the files prepared in ``folder`` and of packages; returns its bytes."""
    with tempfile.TemporaryDirectory() as held, tarfile.open(archive, "w:xz") as tar:
        for path in prepared(folder):
            tar.add(path, f"{GPU}/{path.name}")
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as file:
                file.extractall(held)
        for library in Path(held).rglob("*.so"):
            _strip(library)
        if wheels:
            tar.add(held, SITE)
    return archive.stat().st_size


def prepared(folder: Path) -> Iterator[Path]:
    """Kernels as machine code, models without weights, their inputs and results."""
    for kind in KINDS:
        yield from (path for path in sorted(folder.glob(kind)) if not BUILT.search(path.name))


def _strip(library: Path) -> None:
    """Strips symbols, if there is a tool for it."""
    tool = shutil.which("strip")
    if tool is not None:
        subprocess.run([tool, "--strip-unneeded", str(library)], check=True)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpacks into ``folder``; returns the folder of the packages."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        for member in tar.getmembers():
            if member.name.startswith(f"{GPU}/"):
                member.name = member.name.removeprefix(f"{GPU}/")
            tar.extract(member, folder, filter="data")
    return folder / SITE


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
