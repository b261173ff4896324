"""Rows of results, as printed and stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

FILE, FAULTS = "results.json", "faults.txt"


@dataclass(frozen=True)
class Row:
    """The result of a kernel or a model: a ``fault``, or its relative error; seconds by engine, and
    why others have none."""

    section: str
    name: str
    error: float | None = None
    fault: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    notes: Mapping[str, float] = field(default_factory=dict[str, float])
    refused: Mapping[str, str] = field(default_factory=dict[str, str])

    def with_times(self, seconds: Mapping[str, float], notes: Mapping[str, float],
                   refused: Mapping[str, str] | None = None) -> Row:  # fmt: skip
        """The same with timings."""
        return replace(self, seconds=dict(seconds), notes=dict(notes), refused=dict(refused or {}))

    @property
    def ratio(self) -> float | None:
        """Speedup of modelcc over the best other engine."""
        others = [taken for name, taken in self.seconds.items() if name != "modelcc"]
        return min(others) / self.seconds["modelcc"] if others else None

    def line(self) -> str:
        """One line of the table."""
        verdict = self.fault or ("" if self.error is None else f"right {self.error:.0e}")
        times = (f"{name} {taken * 1e6:.1f}" for name, taken in self.seconds.items())
        notes = (f"{value:.3g} {name}" for name, value in self.notes.items())
        ratio = [] if self.ratio is None else [f"x{self.ratio:.2f}"]
        refused = (f"[{name}: {why[:60]}]" for name, why in self.refused.items())
        words = "  ".join((*times, *notes, *ratio, *refused))
        return f"{self.section:9} {self.name:36} {verdict:12} {words}".rstrip()


class Results:
    """All rows, stored in a file of ``folder`` and of ``others`` after each; existing ones are
    resumed."""

    def __init__(self, folder: Path, *others: Path) -> None:
        self.folders = list(dict.fromkeys((folder, *others)))
        self.paths = [one / FILE for one in self.folders]
        first = self.paths[0]
        kept = json.loads(first.read_text()) if first.exists() else []
        self.rows = {row.name: row for row in (Row(**entry) for entry in kept)}

    def add(self, row: Row) -> None:
        """Stores it, replacing an earlier one of its name, and prints it."""
        self.rows[row.name] = row
        text = json.dumps([asdict(row) for row in self.rows.values()], indent=1)
        for path in self.paths:
            partial = path.with_suffix(".partial")
            partial.write_text(text)
            partial.replace(path)
        print(row.line(), flush=True)

    def keep_trace(self, name: str, trace: str) -> None:
        """Appends the details of a fault to the files of faults."""
        for folder in self.folders:
            with (folder / FAULTS).open("a") as file:
                file.write(f"== {name}\n{trace.rstrip()}\n\n")

    def is_right(self, name: str) -> bool:
        """Whether there is a row without a fault."""
        return name in self.rows and not self.rows[name].fault

    def is_timed(self, name: str) -> bool:
        """Whether nothing is left to do."""
        return self.is_right(name) and bool(self.rows[name].seconds)

    def of(self, section: str) -> Sequence[Row]:
        """The rows of a section."""
        return [row for row in self.rows.values() if row.section == section]
