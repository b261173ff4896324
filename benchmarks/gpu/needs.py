"""Checks the requirements of the benchmark."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
PEERS = ("torch", "triton", "jax", "jax-cuda13-plugin", "onnxruntime", "timm", "transformers")


def requirements(extra: str = "") -> Sequence[str]:
    """Requirements of the project, and those of ``extra``."""
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    return (*project["dependencies"], *project["optional-dependencies"].get(extra, ()))


def state(needed: Sequence[str], found: Callable[[str], str] = version) -> tuple[str, bool]:
    """A line of installed, missing and mismatching packages; False if a mandatory one is
    missing."""
    there, lacking, whole = list[str](), list[str](), True
    for requirement in needed:
        name = re.split(r"[<>=!~\\[ ]", requirement, maxsplit=1)[0]
        try:
            number = found(name)
        except PackageNotFoundError:
            lacking.append(f"{requirement} (missing)")
            whole = False
            continue
        there.append(f"{name} {number}")
        if not _meets(requirement, number):
            lacking.append(f"{requirement} ({number} is there)")
    return f"there: {', '.join(there)}; lacking: {', '.join(lacking) or 'nothing'}", whole


def _meets(requirement: str, number: str) -> bool:
    """Supports ``>=`` and ``==….*``, the only specifiers that the project uses."""
    found = re.search(r"(>=|==)([\d.]+)", requirement)
    if found is None:
        return True
    wanted = [int(part) for part in found[2].strip(".").split(".")]
    have = [int(part) for part in re.findall(r"\d+", number)]
    return have[: len(wanted)] == wanted if found[1] == "==" else have >= wanted


def peers(found: Callable[[str], str] = version) -> str:
    """Versions of other engines and of tools."""
    words: list[str] = []
    for name in PEERS:
        try:
            words.append(f"{name} {found(name)}")
        except PackageNotFoundError:
            words.append(f"no {name}")
    tools = (f"{'' if shutil.which(n) else 'no '}{n}" for n in ("ptxas", "compute-sanitizer"))
    return ", ".join((*words, *tools))


def gpu() -> str:
    """The GPU's name and driver version; a message if there is none."""
    if shutil.which("nvidia-smi") is None:
        return "a machine without nvidia-smi"
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "a machine without a GPU"


def main() -> int:
    """Say it; 2 if the benchmark cannot run."""
    line, whole = state(requirements("cuda"))
    print(f"{gpu()}; Python {platform.python_version()}; {line}; beside: {peers()}", flush=True)
    return 0 if whole else 2


if __name__ == "__main__":
    raise SystemExit(main())
