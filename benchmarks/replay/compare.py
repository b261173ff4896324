"""Matching of the kernels of two trees, and their differences.

A kernel is identified by its text and by the user's nodes it originates from, not by its number.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.replay.records import Kernel, Outcome, Setting

Pair = tuple[Kernel | None, Kernel | None]
"""Before and now; None where there is none."""

STATUSES = ("same", "changed", "added", "removed")
"""Statuses of kernels."""


@dataclass(frozen=True)
class Difference:
    """A difference in one case and one setting.

    `status` is `changed`, `added` or `removed` for kernels; `came` and `went` for a case that only
    one tree has; `memory` if that differs; `fails` and `compiles` if a case does so now only.
    """

    group: str
    case: str
    setting: Setting
    status: str
    details: tuple[str, ...]
    before: Kernel | None = None
    now: Kernel | None = None

    @property
    def kernel(self) -> Kernel | None:
        """The kernel now, or before if removed."""
        return self.now or self.before


@dataclass(frozen=True)
class Tally:
    """Per group: kernels by status, counted in every setting, the settings of failing cases, and
    characters by target."""

    counts: Counter[str] = field(default_factory=Counter[str])
    before: Counter[str] = field(default_factory=Counter[str])
    now: Counter[str] = field(default_factory=Counter[str])

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.counts + other.counts, self.before + other.before, self.now + other.now
        )  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """All differences, the tallies by group, and cases that neither tree compiles, with the
    reason."""

    differences: tuple[Difference, ...]
    tallies: dict[str, Tally]
    neither: tuple[Outcome, ...]

    @property
    def kernels(self) -> int:
        """The number of compared kernels."""
        counts = [tally.counts for tally in self.tallies.values()]
        return sum(sum(found[status] for status in STATUSES) for found in counts)


def compare(before: Sequence[Outcome], now: Sequence[Outcome]) -> Comparison:
    """`now` against `before`, case by case and setting by setting."""
    old = {(one.case, one.setting): one for one in before}
    new = {(one.case, one.setting): one for one in now}
    tallies: dict[str, Tally] = defaultdict(Tally)
    differences: list[Difference] = []
    neither: list[Outcome] = []
    for key in dict.fromkeys((*old, *new)):
        one, other = old.get(key), new.get(key)
        differences += _differences(one, other, tallies)
        failed = other or one
        if failed is not None and _fails(one) and _fails(other):
            neither.append(failed)
    return Comparison(tuple(differences), dict(tallies), tuple(neither))


def _fails(outcome: Outcome | None) -> bool:
    return outcome is not None and bool(outcome.failed)


def _differences(
    before: Outcome | None, now: Outcome | None, tallies: dict[str, Tally]
) -> Iterator[Difference]:
    """Differences of one case and setting, which are tallied."""
    found = now or before
    assert found is not None
    place, tally = (found.group, found.case, found.setting), tallies[found.group]
    if _fails(before) or _fails(now):
        tally.counts["failing"] += 1
        if _fails(before) != _fails(now):
            failed = now if now and now.failed else before
            assert failed is not None
            yield Difference(*place, "fails" if failed is now else "compiles", (failed.failed,))
        return
    together = pairs(before.kernels if before else (), now.kernels if now else ())
    differences = [Difference(*place, *_status(one, two), one, two) for one, two in together]
    _count(tally, found.setting.target, differences)
    if before is None or now is None:
        if found.kernels:
            yield Difference(*place, "came" if now else "went", (f"{len(found.kernels)} kernels",))
        return
    yield from (one for one in differences if one.status != "same")
    if moved := tuple(_memory(before, now)):
        yield Difference(*place, "memory", moved)


def _status(before: Kernel | None, now: Kernel | None) -> tuple[str, tuple[str, ...]]:
    if before is None:
        return "added", ()
    if now is None:
        return "removed", ()
    details = tuple(facets(before, now))
    return "changed" if details else "same", details


def _count(tally: Tally, target: str, differences: Sequence[Difference]) -> None:
    tally.counts.update(one.status for one in differences)
    tally.before[target] += sum(one.before.size for one in differences if one.before)
    tally.now[target] += sum(one.now.size for one in differences if one.now)


# --- matching of kernels


def pairs(before: Sequence[Kernel], now: Sequence[Kernel]) -> list[Pair]:
    """Matched kernels: those with equal text, else with the same nodes and name, with the same
    nodes, or with nodes in common."""
    old, new = list(before), list(now)
    found: list[Pair] = []
    keys: tuple[Callable[[Kernel], Hashable], ...] = (
        lambda k: (k.text, k.nodes, k.base),
        lambda k: k.text,
        lambda k: (k.nodes, k.base),
        lambda k: k.nodes,
    )
    for key in keys:
        found += _matched(old, new, key)
    found += _related(old, new)
    return [*found, *((kernel, None) for kernel in old), *((None, kernel) for kernel in new)]


def _matched(
    old: list[Kernel], new: list[Kernel], key: Callable[[Kernel], Hashable]
) -> Iterator[Pair]:
    """Removes kernels with equal keys from both lists, in order."""
    waiting: dict[Hashable, list[Kernel]] = defaultdict(list)
    for kernel in new:
        waiting[key(kernel)].append(kernel)
    for kernel in list(old):
        if waiting[key(kernel)]:
            partner = waiting[key(kernel)].pop(0)
            _take(old, kernel)
            _take(new, partner)
            yield kernel, partner


def _related(old: list[Kernel], new: list[Kernel]) -> Iterator[Pair]:
    """Removes kernels with common nodes from both lists, those with most overlap first."""
    shares = [
        (_share(one, other), number, place)
        for number, one in enumerate(old)
        for place, other in enumerate(new)
    ]
    ranked = sorted((s for s in shares if s[0] > 0), key=lambda s: (-s[0], s[1], s[2]))
    ones, others = list(old), list(new)
    taken: set[tuple[str, int]] = set()
    for _, number, place in ranked:
        if taken.isdisjoint({("old", number), ("new", place)}):
            taken |= {("old", number), ("new", place)}
            _take(old, ones[number])
            _take(new, others[place])
            yield ones[number], others[place]


def _take(kernels: list[Kernel], kernel: Kernel) -> None:
    position = next(n for n, one in enumerate(kernels) if one is kernel)
    del kernels[position]


def _share(one: Kernel, other: Kernel) -> float:
    """The overlap (Jaccard) of the nodes of both."""
    a, b = set(one.nodes), set(other.nodes)
    return len(a & b) / len(a | b) if a & b else 0.0


# --- how they differ


def facets(before: Kernel, now: Kernel) -> Iterator[str]:
    """Every aspect in which a kernel differs; aspects that a tree does not report are skipped."""
    if before.text != now.text:
        same = before.size == now.size
        yield f"text {now.size:,}" if same else f"text {before.size:,} → {now.size:,}"
    if before.launches != now.launches:
        yield f"launches {before.launches} → {now.launches}"
    for name in ("flops", "bytes", "plan", "loops"):
        one, other = getattr(before, name), getattr(now, name)
        if one is not None and other is not None and one != other:
            yield f"{name} {_shown(one)} → {_shown(other)}"


def _memory(before: Outcome, now: Outcome) -> Iterator[str]:
    if before.arena != now.arena:
        yield f"arena {before.arena} → {now.arena}"
    one, other = before.constants, now.constants
    if one is not None and other is not None and one != other:
        yield f"bytes of constants {one:,} → {other:,}"


def _shown(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value) or "none"
