"""Outcomes of models, and all outcomes as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PASSED, NOT_BUILT, REFUSED = "passed", "not built", "refused by torch"
EXPORT, COMPILE = "torch.export", "torch.compile"
TOLERANCE = 1e-4
"""The largest error, relative to the largest element."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a model by one way: ``reason`` starts with its kind.

    ``error`` is relative, ``seconds`` the CPU time of compiling without tracing by PyTorch, or with
    it by ``torch.compile``, None where it was not measured.  ``nodes`` is the number of compiled
    operators, ``breaks`` that of Dynamo's graph breaks, ``elsewhere`` are operators that ran in
    PyTorch.
    """

    model: str
    kind: str
    way: str
    reason: str
    error: float = 0.0
    seconds: float | None = None
    nodes: int = 0
    breaks: int = 0
    elsewhere: Sequence[str] = ()


HEAD = f"""\
# Models of PyTorch's libraries

Written by `python -m conformance.torch_models`, which adds models to those that are here. Each has
random weights, none of them one number all over, and the smallest size that its library takes
without trouble; what comes out is compared with eager execution. It passes if no result differs by
more than {TOLERANCE:g} of the greatest element. See [PyTorch](torch.md) for the two ways. What is
not here has not been tried.
"""

TERMS = """\
Operators are nodes of modelcc's graph by `torch.export`, and of PyTorch's by `torch.compile`.
Seconds are CPU time of compiling, by `torch.compile` with PyTorch's tracing. Graph breaks are
Dynamo's; operators in the last column ran in PyTorch.
"""

LEFT_OUT = """\
For these no small form is known here, or PyTorch itself does not run it.

| model | kind | reason |
|---|---|---|
"""

KINDS = (PASSED, REFUSED, "unsupported", "refused", "wrong", "crash")


def page_of(outcomes: Sequence[Outcome]) -> str:
    """Counts by library and way, failures with the reason, all passed ones, and the rest.

    What was not built is the same by any way.
    """
    every = sorted(
        outcomes, key=lambda o: (o.model.split("/")[0], o.kind, o.model, o.way != EXPORT)
    )
    built = [o for o in every if not o.reason.startswith(NOT_BUILT)]
    failed = [o for o in built if o.reason != PASSED]
    parts = (HEAD, _counts(built), "## What does not pass", _failures(failed), "## What passes")
    passed = _passes([o for o in built if o.reason == PASSED])
    left = _left_out([o for o in every if o not in built and o.way == EXPORT])
    return "\n".join([*parts, "", TERMS, passed, "## What is left out", "", left])


def _left_out(outcomes: Sequence[Outcome]) -> str:
    plain = ((o, o.reason.removeprefix(f"{NOT_BUILT}: ")) for o in outcomes)
    rows = (f"| {o.model} | {o.kind} | {_cell(reason, 120)} |\n" for o, reason in plain)
    return f"{LEFT_OUT}{''.join(rows)}"


def _counts(outcomes: Sequence[Outcome]) -> str:
    lines = [f"| library | way | tried | {' | '.join(KINDS)} |", f"|{'---|' * (3 + len(KINDS))}"]
    groups = dict.fromkeys((o.model.split("/")[0], o.way) for o in outcomes)
    for library, way in groups:
        own = [o for o in outcomes if (o.model.split("/")[0], o.way) == (library, way)]
        counts = [sum(o.reason.split(":")[0] == kind for o in own) for kind in KINDS]
        lines.append(f"| {library} | {way} | {len(own)} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def _failures(outcomes: Sequence[Outcome]) -> str:
    lines = ["", "| model | kind | way | reason |", "|---|---|---|---|"]
    for o in outcomes:
        lines.append(f"| {o.model} | {o.kind} | {o.way} | {_cell(o.reason)} |")
    return "\n".join(lines) + "\n"


def _cell(text: str, most: int = 240) -> str:
    """Text escaped for a table cell."""
    plain = " ".join(text.replace("|", "/").replace("`", "'").split())
    return plain if len(plain) <= most else plain[: most - 1].rstrip() + "…"


def _passes(outcomes: Sequence[Outcome]) -> str:
    columns = ("model", "kind", "way", "operators", "seconds", "difference", "breaks", "in PyTorch")
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for o in outcomes:
        seconds = "" if o.seconds is None else f"{o.seconds:.1f}"
        numbers = f"{o.nodes} | {seconds} | {o.error:.1e} | {o.breaks}"
        left = ", ".join(name.removeprefix("aten.") for name in o.elsewhere)
        lines.append(f"| {o.model} | {o.kind} | {o.way} | {numbers} | {left} |")
    return "\n".join(lines) + "\n"


def outcomes_in(page: str) -> Iterator[Outcome]:
    """The outcomes parsed from a page, as far as it has them."""
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if "/" not in cells[0] or not line.startswith("| "):
            continue
        if len(cells) == 3:
            model, kind, reason = cells
            reason = f"{NOT_BUILT}: {reason}"
            yield from (Outcome(model, kind, way, reason) for way in (EXPORT, COMPILE))
            continue
        model, kind, way, *rest = cells
        if len(rest) == 1:
            yield Outcome(model, kind, way, rest[0])
            continue
        nodes, seconds, error, breaks, left = rest
        names = tuple(f"aten.{name}" for name in left.split(", ") if left)
        took = float(seconds) if seconds else None
        yield Outcome(model, kind, way, PASSED, float(error), took, int(nodes), int(breaks), names)
