"""Results of a campaign, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fuzz.campaign import Tried


def summary(found: Sequence[Tried]) -> str:
    """Counts of mutants by outcome, and of rejections with a location."""
    kinds = Counter(t.outcome.kind for t in found)
    refused = [t.outcome for t in found if t.outcome.kind == "refused"]
    placed = sum(outcome.placed for outcome in refused)
    lines = [f"{len(found)} mutants of {len({t.model for t in found})} models"]
    lines += [f"  {kind:9}{count:7}" for kind, count in kinds.most_common()]
    if refused:
        lines.append(f"  {placed} of {len(refused)} refusals name a place in the model")
    slowest = max(found, key=lambda t: t.outcome.seconds, default=None)
    if slowest:
        lines.append(f"  longest: {slowest.outcome.seconds:.1f} s ({line(slowest)})")
    return "\n".join(lines)


def line(tried: Tried) -> str:
    """One mutant and its outcome."""
    outcome = tried.outcome
    first = outcome.message.split("\n")[0][:400]
    return f"#{tried.number} {tried.changes}: {outcome.kind} at {outcome.stage}: {first}"


def groups(found: Sequence[Tried]) -> list[str]:
    """Similar findings as one line, the most frequent first, with the first mutant."""
    alike: dict[str, list[Tried]] = {}
    for tried in found:
        if tried.outcome.is_finding:
            message = tried.outcome.message
            kind = message.split(":")[0]
            place = message.rsplit("|", 1)[-1].split(" < ")[0]
            alike.setdefault(f"{tried.outcome.kind} {kind} {place}", []).append(tried)
    ordered = sorted(alike.values(), key=lambda each: (-len(each), each[0].number))
    return [f"{len(each)} × {line(each[0])}" for each in ordered]
