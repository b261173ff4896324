"""Packages of other people, found as if pip had installed them."""

from __future__ import annotations

import tomllib
from pathlib import Path


def described(package: Path, folder: Path) -> tuple[str, str]:
    """Folders to put on Python's path for the project in ``package``: its modules, and its entry
    points, which are written below ``folder``."""
    project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
    name, version = project["name"], project["version"]
    place = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    place.mkdir(parents=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (place / "METADATA").write_text(metadata, "utf-8")
    groups = [
        f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (place / "entry_points.txt").write_text("\n".join(groups), "utf-8")
    return str(package.absolute()), str(folder.absolute())
