"""Results of a comparison, as rows, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.machine import Peaks
from benchmarks.peers import OURS
from benchmarks.rows import Row
from benchmarks.summary import summary_lines


@dataclass(frozen=True)
class Comparison:
    """All rows of one session, and their provenance."""

    machine: str
    date: str
    reference: str
    versions: Mapping[str, str]
    peaks: tuple[Peaks, ...]
    rows: tuple[Row, ...]


HEADINGS = (
    "model", "threads", "engine", "ms", "10–90 %", "× faster", "max error", "load s", "peak MiB",
    "GFLOP/s", "of peak", "weights GB/s", "of read", "compile s", "cached s", "compile MiB",
)  # fmt: skip


def cells(row: Row) -> tuple[str, ...]:
    """The row as text, one cell for each of `HEADINGS`."""
    name = (row.model, str(row.threads), row.peer)
    if row.milliseconds is None:
        return (*name, "–", row.reason, *[""] * (len(HEADINGS) - 5))
    return (
        *name,
        _number(row.milliseconds),
        f"{_number(row.low)}–{_number(row.high)}",
        "" if row.speedup is None else f"{row.speedup:.2f}",
        "" if row.error is None else f"{row.error:.1e}",
        _number(row.load_seconds),
        "" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:.0f}",
        _number(row.gflops),
        "" if row.peak_share is None else f"{row.peak_share:.0%}",
        _number(row.weight_gigabytes),
        "" if row.read_share is None else f"{row.read_share:.0%}",
        _number(row.compile_seconds),
        _number(row.cached_seconds),
        "" if row.compile_bytes is None else f"{row.compile_bytes / 2**20:.0f}",
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


NARROW = (2, 3, 5, 6, 7, 8, 10)
"""The columns that fit a terminal."""


def table(rows: Sequence[Row], reference: str) -> Table:
    """The rows of one model and thread count, for the terminal."""
    result = Table(
        title=f"{rows[0].model}, {rows[0].threads} thread(s)",
        caption=f"× faster than {reference}, round by round",
        box=box.SIMPLE,
    )
    for column in NARROW:
        result.add_column(HEADINGS[column], no_wrap=True, justify="right" if column > 2 else "left")
    for row in rows:
        style = "bold" if row.peer == OURS else "dim" if row.milliseconds is None else None
        texts = cells(row)
        result.add_row(*(texts[column] for column in NARROW), style=style)
    return result


def markdown(found: Comparison) -> str:
    """A report to commit or paste."""
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items())
    lines = [
        f"# Comparison of {found.date}",
        "",
        f"{found.machine}. {versions}.",
        "",
        *(
            f"Peak on {peak.threads} core(s): {peak.gflops:.0f} GFLOP/s f32, "
            f"{peak.gigabytes:.0f} GB/s read."
            for peak in found.peaks
        ),
        "",
        *summary_lines(found.rows),
        "",
        "## All engines",
        "",
        f"Engines take turns, pinned to the same cores. × faster is against {found.reference}: the "
        "median over rounds of the ratio of medians. Max error is relative to the largest output "
        f"of {found.reference}. openvino-default may compute in bf16; modelcc-strict is compiled "
        "without Winograd's and Strassen's algorithms.",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
        *("| " + " | ".join(cells(row)) + " |" for row in found.rows),
    ]
    return "\n".join(lines) + "\n"


def to_json(found: Comparison) -> str:
    """Everything, for later comparisons and plots."""
    return json.dumps(asdict(found), indent=1) + "\n"


def from_json(found: Mapping[str, Any]) -> Comparison:
    """Parses the output of :func:`to_json`."""
    peaks = tuple(Peaks(**peak) for peak in found["peaks"])
    rows = (replace(Row(**row), rounds=tuple(row["rounds"])) for row in found["rows"])
    return replace(Comparison(**found), peaks=peaks, rows=tuple(rows))
