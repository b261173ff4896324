"""Rows of results, as they are printed and kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import geometric_mean


@dataclass(frozen=True)
class Row:
    """What came of a kernel or a model: a ``fault`` that it has, or its error as a part of the
    largest number; seconds by engine."""

    section: str
    name: str
    error: float | None = None
    fault: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    notes: Mapping[str, float] = field(default_factory=dict[str, float])

    def with_times(self, seconds: Mapping[str, float], notes: Mapping[str, float]) -> Row:
        """The same with times."""
        return replace(self, seconds=dict(seconds), notes=dict(notes))

    @property
    def ratio(self) -> float | None:
        """How many times as fast as the best of the others modelcc is."""
        others = [taken for name, taken in self.seconds.items() if name != "modelcc"]
        return min(others) / self.seconds["modelcc"] if others else None

    def line(self) -> str:
        """One line of the table."""
        verdict = self.fault or f"right {self.error:.0e}"
        times = (f"{name} {taken * 1e6:.1f}" for name, taken in self.seconds.items())
        notes = (f"{value:.3g} {name}" for name, value in self.notes.items())
        ratio = [] if self.ratio is None else [f"x{self.ratio:.2f}"]
        return f"{self.name:32} {verdict:12} {'  '.join((*times, *notes, *ratio))}".rstrip()


@dataclass
class Results:
    """All rows, kept in a file after each."""

    path: Path
    rows: dict[str, Row] = field(default_factory=dict[str, Row])

    def add(self, row: Row) -> None:
        """Keep it, in the place of an earlier one of its name, and print it."""
        self.rows[row.name] = row
        self.path.write_text(json.dumps([asdict(row) for row in self.rows.values()], indent=1))
        print(row.line(), flush=True)

    def right(self, section: str) -> Sequence[Row]:
        """Those without a fault."""
        return [r for r in self.rows.values() if r.section == section and not r.fault]

    def summary(self) -> str:
        """Geometric means, and how many have faults."""
        lines: list[str] = []
        for section in dict.fromkeys(row.section for row in self.rows.values()):
            ratios = [row.ratio for row in self.right(section) if row.ratio is not None]
            faults = sum(r.section == section and bool(r.fault) for r in self.rows.values())
            mean = f"{geometric_mean(ratios):.2f}, least {min(ratios):.2f}" if ratios else "open"
            lines.append(f"{section}: best other / modelcc {mean}; {faults} with faults")
        return "\n".join(lines)
