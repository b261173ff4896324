"""Results of a run of the suite, as Markdown and JSON."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from conformance.check import Outcome

_DETAIL = re.compile(r"'[^']*'|\"[^\"]*\"|[-+]?\d+(\.\d+)?(e[-+]?\d+)?")


def counts(outcomes: Sequence[Outcome]) -> dict[str, int]:
    """Cases by state."""
    found = Counter(outcome.state for outcome in outcomes)
    return {state: found[state] for state in ("compiled", "specialised", "skipped", "failed")}


def to_json(outcomes: Sequence[Outcome], suite: str) -> str:
    """All results, with each case's outcome."""
    ordered = sorted(outcomes, key=lambda o: (o.kind, o.name))
    found = {"suite": suite, "cases": len(outcomes), **counts(outcomes)}
    return json.dumps({**found, "outcomes": [asdict(o) for o in ordered]}, indent=1) + "\n"


def to_markdown(outcomes: Sequence[Outcome], suite: str, expected: Mapping[str, str]) -> str:
    """A table of kinds and states, then failures by reason."""
    kinds = list(dict.fromkeys(outcome.kind for outcome in outcomes))
    lines = [
        f"# ONNX conformance: {suite}",
        "",
        "| cases | all | compiled | specialised | skipped | failed |",
    ]
    lines += ["|---|---|---|---|---|---|"]
    for kind in (*kinds, "all"):
        own = [o for o in outcomes if kind in (o.kind, "all")]
        lines.append(f"| {kind} | {len(own)} | {' | '.join(map(str, counts(own).values()))} |")
    random = sum(o.random and o.state != "failed" for o in outcomes)
    skipped = Counter(o.reason for o in outcomes if o.state == "skipped")
    lines += ["", *(f"{n} skipped: {why}." for why, n in sorted(skipped.items()))]
    lines += [
        "",
        f"{random} of those that passed draw random numbers: their types and shapes agree.",
    ]
    return "\n".join([*lines, "", *_failures(outcomes, expected)]) + "\n"


def _failures(outcomes: Sequence[Outcome], expected: Mapping[str, str]) -> list[str]:
    failed = [o for o in outcomes if o.state == "failed"]
    groups: dict[str, list[Outcome]] = {}
    for outcome in failed:
        key = expected.get(outcome.name) or _DETAIL.sub("…", outcome.reason)[:160]
        groups.setdefault(key, []).append(outcome)
    lines: list[str] = []
    for key, own in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        lines += [f"## {len(own)} × {key}", ""]
        lines += [f"- `{o.name}`: {o.reason}" for o in sorted(own, key=lambda o: o.name)]
        lines.append("")
    return lines
