"""The versions that CI tries are those that the package declares."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BOUND = re.compile(r"([A-Za-z0-9_-]+)(?:>=|==)([0-9.]+?)(?:\.\*)?$")


def test_the_lowest_versions_are_the_declared_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert "modelcc[train]" in extras["test"]
    tools = [text for text in extras["test"] if text != "modelcc[train]"]
    declared = [*project["dependencies"], *extras["train"], *tools]
    bounds = dict(bound_of(text) for text in declared)
    lines = (ROOT / ".ci" / "lowest.txt").read_text("utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pinned.keys() == bounds.keys()
    for name, version in pinned.items():
        assert numbers(version) == numbers(bounds[name]), name


def bound_of(requirement: str) -> tuple[str, str]:
    found = _BOUND.fullmatch(requirement)
    assert found, requirement
    return found[1], found[2]


def numbers(version: str) -> list[int]:
    """The parts of a version, without zeros at its end."""
    parts = [int(part) for part in version.split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return parts
