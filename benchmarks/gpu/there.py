"""All of it on a machine with a GPU: ``python3 -m benchmarks.gpu.there PACK OUT`` in the tree.

Unpacks what was prepared and the packages that came along, finds NVIDIA's tools, says what is there
and what is lacking, and runs ``benchmarks.gpu`` with the further words, which write to OUT.  What
other engines have compiled is kept in OUT, too; ``--caches FILE`` brings it again, and ``--results
FILE`` what an earlier call has done.  Needs Python's own library alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.gpu.pack import SITE, unpack

TREE = Path(__file__).resolve().parents[2]
CACHES = "caches.tar.xz"
KEPT: Mapping[str, str] = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "JAX_COMPILATION_CACHE_DIR": "xla",
}
"""Cache folders of engines, and their names in the archive."""

TOOLS = "ptxas", "ncu", "compute-sanitizer"
PLACES = "/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*", "/usr/local/cuda*/*"
"""Locations of NVIDIA's tools if they are not on the path."""


def parser() -> argparse.ArgumentParser:
    """What the command takes; other words are those of ``benchmarks.gpu``."""
    made = argparse.ArgumentParser(prog="benchmarks.gpu.there", description=__doc__)
    made.add_argument("pack", type=Path)
    made.add_argument("out", type=Path)
    made.add_argument("--folder", type=Path, default=Path("/tmp/modelcc-gpu"), help="to work in")
    made.add_argument("--caches", type=Path, help="what an earlier call kept of other engines'")
    made.add_argument("--results", type=Path, help="an earlier call's, which is gone on with")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """What the benchmark ends with; 2 if it lacks what it needs."""
    begin = perf_counter()
    given, words = parser().parse_known_args(arguments)
    held, out = given.folder.resolve(), given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    site = held / SITE
    if not list(held.glob("*.seeded.onnx")):
        unpack(given.pack, held)
    if given.caches is not None:
        with tarfile.open(given.caches) as tar:
            tar.extractall(held, filter="data")
    if given.results is not None:
        shutil.copy(given.results, held / given.results.name)
    known = environment(os.environ, held, site)
    print(f"unpacked after {perf_counter() - begin:.0f} s", flush=True)
    needs = subprocess.run([sys.executable, "-m", "benchmarks.gpu.needs"], env=known, check=False)
    if needs.returncode:
        return needs.returncode
    command = [sys.executable, "-m", "benchmarks.gpu", str(held), "--out", str(out), *words]
    done = subprocess.run(command, env=known, check=False)
    print(f"done after {perf_counter() - begin:.0f} s", flush=True)
    keep(held, out / CACHES)
    return done.returncode


def environment(before: Mapping[str, str], held: Path, site: Path) -> dict[str, str]:
    """The environment of all processes: packages, tools and caches."""
    paths = [str(site)] if site.exists() else []
    paths += [str(TREE / "src"), str(TREE), *filter(None, [before.get("PYTHONPATH", "")])]
    found = [before.get("PATH", ""), *tool_folders(PLACES)]
    caches = {name: str(held / folder) for name, folder in KEPT.items()}
    words = {"PYTHONPATH": os.pathsep.join(paths), "PATH": os.pathsep.join(found)}
    return {**before, **words, **caches, "PYTHONUNBUFFERED": "1"}


def tool_folders(places: Sequence[str]) -> Sequence[str]:
    """Folders of ``places`` that have one of :data:`TOOLS`."""
    folders = [folder for place in places for folder in sorted(Path("/").glob(place[1:]))]
    return [str(f) for f in folders if any((f / tool).is_file() for tool in TOOLS)]


def keep(held: Path, archive: Path) -> None:
    """Archives the caches, if there are any."""
    folders = [held / folder for folder in KEPT.values() if (held / folder).exists()]
    if not folders:
        return
    with tarfile.open(archive, "w:xz", preset=1) as tar:
        for folder in folders:
            tar.add(folder, folder.name)
    print(f"{archive.stat().st_size / 2**20:.1f} MiB in {archive}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
