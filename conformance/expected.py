"""Expected failures, each with its reason; an entry that no longer fails is an error."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.check import Outcome

FILE = Path(__file__).parent / "expected_failures.toml"


def read(path: Path = FILE) -> dict[str, str]:
    """The reason of every expected failure, by case name."""
    table: dict[str, list[str]] = tomllib.loads(path.read_text("utf-8"))
    return {name: reason for reason, names in table.items() for name in names}


def write(reasons: Mapping[str, str], path: Path = FILE) -> None:
    """Writes the file with these reasons, sorted by name."""
    blocks: list[str] = []
    for reason in sorted(set(reasons.values())):
        names = sorted(name for name, own in reasons.items() if own == reason)
        lines = "".join(f'    "{name}",\n' for name in names)
        blocks.append(f'"{reason}" = [\n{lines}]\n')
    path.write_text("\n".join(blocks), "utf-8")


def unexpected(outcomes: Sequence[Outcome], expected: Mapping[str, str]) -> list[str]:
    """One line for each unexpected failure and each unexpected success."""
    lines: list[str] = []
    for outcome in outcomes:
        failed = outcome.state == "failed"
        if failed and outcome.name not in expected:
            lines.append(f"{outcome.name} failed: {outcome.reason}")
        if not failed and outcome.state != "skipped" and outcome.name in expected:
            lines.append(f"{outcome.name} passes; strike it from {FILE.name} with --strike")
    return lines


def without_passed(outcomes: Sequence[Outcome], expected: Mapping[str, str]) -> dict[str, str]:
    """The expected failures that remain after this run."""
    passed = {outcome.name for outcome in outcomes if outcome.state not in ("failed", "skipped")}
    return {name: reason for name, reason in expected.items() if name not in passed}
