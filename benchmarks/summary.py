"""Summary: modelcc against the best engine of the same precision, by model."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from benchmarks.peers import COMPILED, LOWERED, OURS, STRICT
from benchmarks.pool import ratio
from benchmarks.rows import Row
from benchmarks.zoo.catalogue import variant


@dataclass(frozen=True)
class Standing:
    """modelcc and the fastest other engine that did not lower precision, on one model.

    `faster` is the speedup of modelcc, round by round; `memory` its peak memory relative to the
    leanest of the others.  `strict` is modelcc with accuracy strict, if it ran, and `strict_faster`
    its speedup over `best`.
    """

    ours: Row
    best: Row
    faster: float
    memory: float
    strict: Row | None = None
    strict_faster: float | None = None


def standings(rows: Iterable[Row]) -> tuple[Standing, ...]:
    """One for each model and thread count at which both ran."""
    found: list[Standing] = []
    for _, group in groupby(rows, key=lambda row: (row.model, row.threads)):
        ran = [row for row in group if row.rounds]
        ours = next((row for row in ran if row.peer == OURS), None)
        strict = next((row for row in ran if row.peer == STRICT), None)
        others = [row for row in ran if row.peer not in LOWERED | set(COMPILED)]
        if ours is not None and others:
            found.append(_standing(ours, strict, others))
    return tuple(found)


def _standing(ours: Row, strict: Row | None, others: Sequence[Row]) -> Standing:
    best = min(others, key=lambda row: statistics.median(row.rounds))
    leanest = min(row.peak_bytes or 0 for row in others)
    memory = (ours.peak_bytes or 0) / leanest if leanest else float("nan")
    strict_faster = None if strict is None else ratio(strict.rounds, best.rounds)
    return Standing(ours, best, ratio(ours.rounds, best.rounds), memory, strict, strict_faster)


def batch_of(stem: str) -> int:
    """8 for `resnet50_b8`; 1 for models that are not in the zoo."""
    try:
        return variant(stem)[1] or 1
    except KeyError:
        return 1


def means(found: Sequence[Standing], strict: bool = False) -> dict[tuple[int, int], float]:
    """Geometric mean of `faster`, or of `strict_faster` if known, by threads and batch."""
    groups: dict[tuple[int, int], list[float]] = {}
    for one in found:
        faster = one.strict_faster if strict else one.faster
        if faster is not None:
            groups.setdefault((one.ours.threads, batch_of(one.ours.model)), []).append(faster)
    return {key: statistics.geometric_mean(values) for key, values in groups.items()}


def summary_lines(rows: Iterable[Row]) -> list[str]:
    """Markdown: a table of standings, and the geometric means."""
    found = standings(rows)
    if not found:
        return []
    headings = (
        "model", "threads", "modelcc ms", "strict ms", "best peer ms", "peer", "× faster",
        "strict × faster", "of peak", "max error", "strict error", "peak MiB", "of leanest",
        "compile s", "cached s",
    )  # fmt: skip
    lines = [
        "## modelcc against the best engine that computes in f32",
        "",
        "| " + " | ".join(headings) + " |",
        "|" + "---|" * len(headings),
        *map(_line, found),
        "",
        "*Strict* is modelcc with accuracy strict: without Winograd's and Strassen's algorithms.",
        "",
    ]
    strict = means(found, strict=True)
    for key, mean in means(found).items():
        also = f", strict {strict[key]:.3f}" if key in strict else ""
        lines.append(f"Geometric mean at batch {key[1]} on {key[0]} core(s): {mean:.3f}{also}.  ")
    return lines


def _line(one: Standing) -> str:
    ours, strict = one.ours, one.strict
    bound = "" if ours.peak_share is None else f"{ours.peak_share:.0%}"
    # Above 1, the weights stay in a cache, and memory bandwidth is not the limit.
    if ours.read_share is not None and (ours.peak_share or 0.0) < ours.read_share <= 1.1:
        bound = f"{ours.read_share:.0%} of read"
    cells = (
        ours.model,
        str(ours.threads),
        f"{statistics.median(ours.rounds):.3g}",
        "" if strict is None else f"{statistics.median(strict.rounds):.3g}",
        f"{statistics.median(one.best.rounds):.3g}",
        one.best.peer,
        f"**{one.faster:.2f}**",
        "" if one.strict_faster is None else f"**{one.strict_faster:.2f}**",
        bound,
        "" if ours.error is None else f"{ours.error:.1e}",
        "" if strict is None or strict.error is None else f"{strict.error:.1e}",
        f"{(ours.peak_bytes or 0) / 2**20:.0f}",
        f"{one.memory:.2f}",
        "" if ours.compile_seconds is None else f"{ours.compile_seconds:.1f}",
        "" if ours.cached_seconds is None else f"{ours.cached_seconds:.2f}",
    )
    return "| " + " | ".join(cells) + " |"
