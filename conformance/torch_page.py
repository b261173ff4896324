"""Outcomes of torch's operators, as a page, and parsing of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from typing import Protocol

WIDE = "passed, as with 64 bits"
PARTLY = ", in part by PyTorch"
"""Substrings of reasons that are counted."""
NOTE = "<!-- Made by `python -m conformance.torch_ops --page docs/torch-operators.md`. -->"
HALVES = ("Forward", "Forward and backward")
INTRODUCTION = """torch has a database of its operators (`op_db`) with samples of their operands.
*refused*: torch itself does not run, export or trace the sample, or no tensor comes out.
*as wide*: passed because equal, by the entry's tolerance, to what eager gives with 64 bits, or at
most twice as far from it as what eager gives with 32: both round, and products that are added up
are fused here and not there.
An entry passes if all of its samples do that are not refused."""
TEXTS = (
    "Exported by `torch.export`, compiled, and compared with eager execution by the entry's own "
    "tolerance.",
    'Results and gradients of `torch.compile(backend="modelcc")`, of the entries that have '
    "gradients.  *compiled*: samples of which PyTorch ran no operator itself.",
)


class Told(Protocol):
    """An outcome: its entry, the reason, and whether it is correct or torch's own failure."""

    @property
    def entry(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def passed(self) -> bool: ...
    @property
    def refused(self) -> bool: ...


@dataclass(frozen=True)
class Tally:
    """Entries and samples of a family: all, those on which torch itself fails, and those that pass.

    An entry passes if all samples pass on which torch does not fail.
    """

    family: str
    entries: int
    entries_refused: int
    entries_passed: int
    samples: int
    samples_refused: int
    samples_passed: int
    as_wide: int
    compiled: int


@dataclass(frozen=True)
class Reason:
    """Why some samples of these entries do not pass, or not entirely compiled."""

    samples: int
    reason: str
    entries: str


@dataclass(frozen=True)
class Section:
    """One half of the page, for one sample in ``share``."""

    share: int
    tallies: tuple[Tally, ...]
    reasons: tuple[Reason, ...]


def section(found: Sequence[Told], families: Mapping[str, str], share: int) -> Section:
    """The outcomes of entries aggregated by their ``families``."""
    names = sorted(set(families[o.entry] for o in found))
    groups = {n: [o for o in found if families[o.entry] == n] for n in names}
    return Section(
        share, tuple(_tally(n, own) for n, own in groups.items()), tuple(_reasons(found))
    )


def _tally(family: str, found: Sequence[Told]) -> Tally:
    by_entry: dict[str, list[Told]] = {}
    for outcome in found:
        by_entry.setdefault(outcome.entry, []).append(outcome)
    refused = sum(all(o.refused for o in own) for own in by_entry.values())
    whole = sum(all(o.passed or o.refused for o in own) for own in by_entry.values())
    return Tally(
        family, len(by_entry), refused, whole - refused, len(found),
        sum(o.refused for o in found), sum(o.passed for o in found),
        sum(o.reason.startswith(WIDE) for o in found),
        sum(_is_compiled(o.reason) for o in found),
    )  # fmt: skip


def _is_compiled(reason: str) -> bool:
    return reason.startswith("passed") and PARTLY not in reason


def _reasons(found: Sequence[Told]) -> Iterator[Reason]:
    grouped: dict[str, list[str]] = {}
    for outcome in found:
        if not _is_compiled(outcome.reason):
            grouped.setdefault(_cell(outcome.reason), []).append(outcome.entry)
    for reason in sorted(grouped, key=lambda r: (-len(grouped[r]), r)):
        own = grouped[reason]
        yield Reason(len(own), reason, ", ".join(f"`{name}`" for name in sorted(set(own))))


def _cell(reason: str) -> str:
    """A reason shortened for a table, without source locations and varying numbers."""
    plain = re.sub(r" \([^()]*\.py:\d+\)", "", reason).replace("|", "/")
    return re.sub(r"Mismatched elements.*", "", plain).strip()[:160]


def text(sections: Sequence[Section], versions: str) -> str:
    """The whole page."""
    lines = ["# PyTorch's operators", "", NOTE, "", INTRODUCTION, f"Measured with {versions}."]
    for title, told, one in zip(HALVES, TEXTS, sections, strict=True):
        tried = f"At least one sample in {one.share} of each entry."
        lines += ["", f"## {title}", "", told, tried, ""]
        lines += _table(Tally, [*one.tallies, _sum(one.tallies)])
        lines += ["", *_shares(_sum(one.tallies)), "", "### By reason", ""]
        lines += _table(Reason, one.reasons)
    return "\n".join(lines) + "\n"


def _sum(tallies: Sequence[Tally]) -> Tally:
    counts = [f.name for f in fields(Tally)][1:]
    return Tally("all", *(sum(getattr(t, name) for t in tallies) for name in counts))


def _shares(t: Tally) -> Iterator[str]:
    own, made = t.entries - t.entries_refused, t.samples - t.samples_refused
    yield (
        f"Of what torch hands over, {_percent(t.entries_passed, own)} of entries and "
        f"{_percent(t.samples_passed, made)} of samples pass; of all, "
        f"{_percent(t.entries_passed, t.entries)} and {_percent(t.samples_passed, t.samples)}."
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f} %"


def _table(kind: type, rows: Sequence[Tally | Reason]) -> Iterator[str]:
    names = [f.name.replace("_", " ") for f in fields(kind)]
    yield f"| {' | '.join(names)} |"
    yield "|---" * len(names) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, astuple(row)))} |"


def read(page: str) -> tuple[list[Section], str]:
    """Parses the output of :func:`text`."""
    versions = page.split("Measured with ")[1].split(".\n")[0]
    found: list[Section] = []
    for part in page.split("\n## ")[1:]:
        share = int(part.split("one sample in ")[1].split(" ")[0])
        above, below = part.split("### By reason")
        tallies = [Tally(r[0], *map(int, r[1:])) for r in _cells(above)][:-1]
        reasons = [Reason(int(r[0]), r[1], r[2]) for r in _cells(below)]
        found.append(Section(share, tuple(tallies), tuple(reasons)))
    return found, versions


def _cells(part: str) -> list[list[str]]:
    rows = [line[2:-2].split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return rows[1:]
