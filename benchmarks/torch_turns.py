"""A PyTorch module by eager execution, inductor and modelcc, measured interleaved."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

Step = Callable[[], object]
ROUNDS = 15
ROUND_SECONDS = 0.05


def engines(model: Any, freeze: bool = False) -> dict[str, Any]:
    """Copies of ``model`` by engine."""
    own = {name: copy.deepcopy(model) for name in ("eager", "inductor", "modelcc")}
    options = {"freeze": freeze, "threads": torch.get_num_threads()}
    return {
        "eager": own["eager"],
        "inductor": torch.compile(own["inductor"]),
        "modelcc": torch.compile(own["modelcc"], backend="modelcc", options=options),
    }


def in_turns(steps: Mapping[str, Step], rounds: int = ROUNDS) -> dict[str, float]:
    """Median microseconds of a call of each, with interleaved rounds.

    With one thread in CPU time, which other load does not lengthen.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    found: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step()
            count, start = 0, clock()
            while (elapsed := clock() - start) < ROUND_SECONDS or not count:
                step()
                count += 1
            found[name].append(elapsed / count * 1e6)
    return {name: statistics.median(times) for name, times in found.items()}


def table(title: str, rows: Mapping[str, Mapping[str, float]], extra: Sequence[str] = ()) -> str:
    """Markdown: a row for each model, and modelcc's speedup over inductor."""
    names = [*next(iter(rows.values()))]
    lines = [f"| {title} | {' | '.join(names)} | inductor / modelcc |"]
    lines.append("|---|" + "---:|" * (len(names) + 1))
    for model, times in rows.items():
        ratio = times["inductor"] / times["modelcc"]
        shown = " | ".join(f"{times[name]:,.1f}" for name in names)
        lines.append(f"| {model} | {shown} | {ratio:.2f} |")
    return "\n".join([*lines, *extra])
