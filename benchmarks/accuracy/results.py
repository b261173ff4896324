"""Results as a table, as Markdown and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.table import Table

ERROR_BAR = 1e-4
"""Relative to the largest output, against ONNX Runtime or the model in f64."""
PEER_BAR = 2.0
"""Multiple of ONNX Runtime's error, against the model in f64, that ours may be if above
:data:`ERROR_BAR`."""
TRUTH_BAR = 1e-3
"""An error of ONNX Runtime that is not rounding: the reference is wrong."""
ARENA_BAR = 1.1
COLD_BARS: Mapping[str, float] = {"resnet50": 10.0, "bert_base": 10.0}
STEP_BAR = 1.0
"""Quantisation steps by which a quantised tensor may differ."""
CACHED_BARS: Mapping[str, float] = {"resnet50": 1.0}
"""Seconds, by model."""


Steps = Sequence[Mapping[str, Any]] | None
"""Of a quantised model, :class:`~benchmarks.accuracy.quantised.Steps` at each size."""


@dataclass(frozen=True)
class Found:
    """The result of one process on a model; ``problem`` is why there is none."""

    model: str
    kind: str
    result: Mapping[str, Any] | None = None
    problem: str = ""

    @property
    def failures(self) -> tuple[str, ...]:
        """The bars that are missed."""
        if self.result is None:
            return (self.problem,)
        steps = self.result.get("steps")
        found = [b for made in self.result["backends"] for b in _missed(self.model, made, steps)]
        difference = self.result["difference"]
        near = all(map(rounds_like_peer, self.result["backends"]))
        if difference is not None and not (near or difference <= ERROR_BAR):
            found.append(f"back ends differ by {difference:.1e}")
        return tuple(found)


def _missed(model: str, made: Mapping[str, Any], steps: Steps) -> list[str]:
    errors = [] if rounds_like_peer(made) else [("error", worst(made), ERROR_BAR)]
    if steps:
        errors = [
            ("steps", max(s["worst"] for s in steps), STEP_BAR),
            ("error", max(s["outputs"] for s in steps), ERROR_BAR),
            ("other top results", max(1 - min(s["top"], s["given_top"]) for s in steps), 0.0),
        ]
    figures = [
        *errors,
        ("arena", made["arena"] / max(1, made["bound"]), ARENA_BAR),
    ]
    if made["backend"] == "llvm" and model in COLD_BARS:
        figures.append(("cold compile", made["cold"], COLD_BARS[model]))
    if made["backend"] == "llvm" and model in CACHED_BARS:
        figures.append(("compile from cache", made["cached"], CACHED_BARS[model]))
    return [f"{made['backend']}: {n} {v:.3g} > {bar:g}" for n, v, bar in figures if not v <= bar]


def rounds_like_peer(made: Mapping[str, Any]) -> bool:
    """Whether results are as close to those in f64 as ONNX Runtime's, within bars, at all sizes."""
    known = [(size["own"], size["peer"]) for size in made["sizes"] if size["own"] is not None]
    near = (peer <= TRUTH_BAR and own <= max(ERROR_BAR, PEER_BAR * peer) for own, peer in known)
    return len(known) == len(made["sizes"]) and all(near)


def from_truth(made: Mapping[str, Any], whose: str) -> str:
    """The largest error ``own`` or ``peer`` over sizes, as text; empty if unknown."""
    known = [size[whose] for size in made["sizes"] if size[whose] is not None]
    return f"{max(known):.1e}" if known else ""


def worst(made: Mapping[str, Any]) -> float:
    """The greatest error over sizes and outputs."""
    errors = (max(size["outputs"].values(), default=0.0) for size in made["sizes"])
    return max(errors, default=0.0)


HEADINGS = (
    "model", "set", "back end", "cold s", "cached s", "arena MiB", "/ bound", "max error",
    "from f64", "peer's from f64", "apart", "bars",
)  # fmt: skip
STEP_HEADINGS = (
    "model", "size", "tensors", "states", "steps", "in", "elements off", "error from given",
    "same top from given", "same top", "of sure rows", "sequences", "peer's own",
)  # fmt: skip
SIZE_HEADINGS = ("model", "back end", "inputs", "max error", "ms", "static ms", "ratio")


def rows(found: Found) -> Iterable[tuple[str, ...]]:
    """One row of :data:`HEADINGS` for each back end."""
    if found.result is None:
        yield (found.model, found.kind, *[""] * (len(HEADINGS) - 3), found.problem)
        return
    difference = found.result["difference"]
    for made in found.result["backends"]:
        yield (
            found.model,
            found.kind,
            f"{made['backend']} {made['device']}".strip(),
            f"{made['cold']:.2f}",
            f"{made['cached']:.3f}",
            f"{made['arena'] / 2**20:.2f}",
            f"{made['arena'] / max(1, made['bound']):.2f}",
            f"{worst(made):.1e}",
            from_truth(made, "own"),
            from_truth(made, "peer"),
            "" if difference is None else f"{difference:.1e}",
            "; ".join(_missed(found.model, made, found.result.get("steps"))) or "ok",
        )


def size_rows(found: Found) -> Iterable[tuple[str, ...]]:
    """One row of :data:`SIZE_HEADINGS` for each size that one artifact ran at."""
    result = found.result
    if result is None or "static" not in result:
        return
    for made in result["backends"]:
        for number, size in enumerate(made["sizes"]):
            shapes = dict.fromkeys("×".join(map(str, s)) for s in size["shapes"].values())
            error = max(size["outputs"].values(), default=0.0)
            static = result["static"] if number == 0 and made["backend"] == "llvm" else None
            yield (
                found.model,
                made["backend"],
                " ".join(list(shapes)[:2]),
                f"{error:.1e}",
                f"{size['milliseconds']:.3g}",
                "" if static is None else f"{static:.3g}",
                "" if static is None else f"{size['milliseconds'] / static:.2f}",
            )


def step_rows(found: Found) -> Iterable[tuple[str, ...]]:
    """One row of :data:`STEP_HEADINGS` for each size of a quantised model."""
    for number, steps in enumerate((found.result or {}).get("steps") or ()):
        yield (
            found.model,
            str(number + 1),
            str(steps["tensors"]),
            str(steps["states"]),
            f"{steps['worst']:.3g}",
            steps["where"] if steps["worst"] else "",
            f"{steps['differing']:.1e}",
            f"{steps['outputs']:.1e}",
            *(f"{steps[name]:.4f}" for name in ("given_top", "top", "sure")),
            *(f"{steps[name]:.3g}" if steps["states"] else "" for name in ("whole", "own")),
        )


def table(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> Table:
    """For the terminal."""
    result = Table(box=box.SIMPLE)
    for heading in headings:
        result.add_column(heading, overflow="fold")
    for line in lines:
        result.add_row(*line)
    return result


def markdown(found: Sequence[Found]) -> str:
    """A report to commit or paste."""
    parts = ["# Accuracy", "", *_markdown(HEADINGS, [row for f in found for row in rows(f)])]
    sizes = [row for f in found for row in size_rows(f)]
    if sizes:
        parts += ["", "## One artifact at several sizes", "", *_markdown(SIZE_HEADINGS, sizes)]
    steps = [row for f in found for row in step_rows(f)]
    if steps:
        parts += ["", "## Quantised tensors", "", *_markdown(STEP_HEADINGS, steps)]
    return "\n".join(parts) + "\n"


def _markdown(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    cells = (headings, ["---"] * len(headings), *lines)
    return ["| " + " | ".join(line) + " |" for line in cells]


def to_json(found: Sequence[Found]) -> str:
    """All results."""
    items = [
        {"model": f.model, "set": f.kind, "problem": f.problem, **(f.result or {})} for f in found
    ]
    return json.dumps(items, indent=1) + "\n"
