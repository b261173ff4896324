"""Reports of differences: a list, a table, and unified diffs of kernels' texts."""

from __future__ import annotations

import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path

from rich.table import Table

from benchmarks.replay.compare import STATUSES, Comparison, Difference, Tally
from benchmarks.replay.records import Kernel, Outcome

_NUMBER = re.compile(r"(%[A-Za-z]\w*)\.\d+")
"""A value number in LLVM text."""

COLUMNS = (*STATUSES, "failing")

Alike = tuple[Difference, ...]
"""The same kernel in several settings."""


def listed(comparison: Comparison) -> Iterator[str]:
    """A line for each kernel that differs, below the line of its case."""
    last = ""
    for alike in grouped(comparison.differences):
        first = alike[0]
        if first.case != last:
            last = first.case
            yield first.case
        yield f"  {_line(alike)}"
    cases: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in comparison.neither:
        cases[outcome.case].append(outcome)
    for case, (first, *others) in cases.items():
        more = f" and {len(others)} more" if others else ""
        yield f"{case} compiles with neither tree: {first.failed}  [{first.setting}{more}]"


def grouped(differences: Sequence[Difference]) -> list[Alike]:
    """Differences grouped by equal kernels in several settings."""
    found: dict[tuple[object, ...], list[Difference]] = defaultdict(list)
    for one in differences:
        kernel = one.kernel
        what = None if kernel is None else (kernel.base, kernel.nodes)
        found[one.group, one.case, one.status, what].append(one)
    # Kernels with equal base names and nodes (the parts of an algorithm) are kept separate.
    return [tuple(part) for alike in found.values() for part in _apart(alike)]


def _apart(alike: list[Difference]) -> Iterator[list[Difference]]:
    by_setting: dict[object, list[Difference]] = defaultdict(list)
    for one in alike:
        by_setting[one.setting].append(one)
    for number in range(max(map(len, by_setting.values()))):
        yield [ones[number] for ones in by_setting.values() if number < len(ones)]


def _line(alike: Alike) -> str:
    first = alike[0]
    kernel = first.kernel
    name = "" if kernel is None else f" {kernel.name}{_nodes(kernel)}"
    details = f": {'; '.join(first.details)}" if first.details else ""
    if kernel is not None and not first.details:
        details = f": text {kernel.size:,}"
    more = f" and {len(alike) - 1} more" if len(alike) > 1 else ""
    return f"{first.status}{name}{details}  [{first.setting}{more}]"


def _nodes(kernel: Kernel, most: int = 6) -> str:
    if not kernel.nodes:
        return ""
    left = len(kernel.nodes) - most
    more = f" and {left} more" if left > 0 else ""
    return f" of {', '.join(kernel.nodes[:most])}{more}"


def summary(comparison: Comparison, targets: Sequence[str]) -> Table:
    """A row for each model and one for the op matrix, then their sum."""
    table = Table()
    table.add_column("model", no_wrap=True)
    for head in (*COLUMNS, *(f"{target}, KB" for target in targets)):
        table.add_column(head, justify="right")
    for group, tally in comparison.tallies.items():
        table.add_row(group, *_cells(tally, targets))
    if len(comparison.tallies) > 1:
        table.add_section()
        table.add_row("all", *_cells(sum(comparison.tallies.values(), Tally()), targets))
    return table


def verdict(comparison: Comparison) -> str:
    """A one-line summary."""
    kernels = comparison.kernels
    other = kernels - sum(tally.counts["same"] for tally in comparison.tallies.values())
    some = {"fails": "fail now", "compiles": "compile now", "memory": "have other memory"}
    seen = Counter(one.status for one in comparison.differences)
    more = [f"{seen[status]:,} {words}" for status, words in some.items() if seen[status]]
    first = (
        f"{other:,} of {kernels:,} kernels differ" if other else f"no kernel of {kernels:,} differs"
    )
    return ", and of cases and settings ".join([first, *([", ".join(more)] if more else [])])


def _cells(tally: Tally, targets: Sequence[str]) -> list[str]:
    sizes = ((tally.before[target] / 1e3, tally.now[target] / 1e3) for target in targets)
    texts = (f"{a:,.1f}" if a == b else f"{a:,.1f} → {b:,.1f}" for a, b in sizes)
    return [*(f"{tally.counts[column]:,}" for column in COLUMNS), *texts]


def diffs(comparison: Comparison, name: str, texts: Path) -> Iterator[str]:
    """Lines of the diffs of kernels called `name`, or from a node with that name, in the first
    setting in which they differ.  `MODEL:NAME` restricts them to one model.

    An additional instruction renumbers all subsequent values, so value numbers are dropped if
    anything else differs.
    """
    for alike in grouped(comparison.differences):
        first = alike[0]
        if first.kernel is None or not _means(name, first):
            continue
        old, new = (_text(kernel, texts) for kernel in (first.before, first.now))
        before, now = (f"{tree} {first.case} {first.kernel.name}" for tree in ("before", "now"))
        plain = (
            [_NUMBER.sub(r"\1", line) for line in old],
            [_NUMBER.sub(r"\1", line) for line in new],
        )
        both = plain if plain[0] != plain[1] else (old, new)
        yield from unified_diff(*both, before, now, str(first.setting), lineterm="")


def _means(name: str, one: Difference) -> bool:
    model, colon, kernel = name.rpartition(":")
    if colon and model == one.case:
        name = kernel
    known = [k for k in (one.before, one.now) if k is not None]
    return any(name in (k.name, k.base, *k.nodes) for k in known)


def _text(kernel: Kernel | None, texts: Path) -> list[str]:
    if kernel is None:
        return []
    return zlib.decompress((texts / kernel.text).read_bytes()).decode().splitlines()
