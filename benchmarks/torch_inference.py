"""The zoo by eager PyTorch, inductor, JAX and modelcc, in turns.

    python -m benchmarks.torch_inference [--threads N] [--models A,B] [--engines C,D] [--json FILE]
                                      [--cpu LEVEL]

Every engine has a process for each model, of which one at a time is busy, on as many cores as
threads.  With one thread times are of the processor, so other work on the machine counts little.
Prints Markdown: milliseconds of a call (medians over rounds), how many times as fast as the best
other engine modelcc is, in the better of its two ways (``modelcc``, ``exported``), seconds until
the first result with empty caches, and the most memory of each process while it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.engine_worker import Worker
from benchmarks.processor_level import Native, add_level, keep_to
from benchmarks.torch_engine import ENGINES, Ready, serve
from benchmarks.zoo.catalogue import MODELS

OURS = ("modelcc", "exported")
BESIDE = (*OURS, "unfrozen")


@dataclass(frozen=True)
class Measured:
    """An engine on a model: seconds of each round, of the first call, bytes; or the reason of a
    failure."""

    rounds: tuple[float, ...] = ()
    cold: float = 0.0
    error: float | None = None
    peak: int = 0
    refused: str = ""

    @property
    def seconds(self) -> float:
        """Of a call."""
        return statistics.median(self.rounds)


def measured(
    name: str, engines: Sequence[str], native: Native, rounds: int, limit: float
) -> dict[str, Measured]:
    """All ``engines`` on a model; prepared one after the other, then interleaved."""
    found: dict[str, Measured] = {}
    workers: dict[str, tuple[Worker, Ready]] = {}
    with ExitStack() as stack:
        for engine in engines:
            cache = stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
            worker = Worker(serve, (engine, name, native, cache), limit)
            stack.callback(worker.close)
            ready = worker.answer()
            if isinstance(ready, Ready):
                workers[engine] = worker, ready
            else:
                found[engine] = Measured(refused=ready.reason)
                worker.close()
        times: dict[str, list[float]] = {engine: [] for engine in workers}
        for _ in range(rounds):
            for engine, (worker, _) in workers.items():
                answer = worker.ask(True)
                times[engine] += [answer] if isinstance(answer, float) else []
        for engine, (worker, ready) in workers.items():
            rows = tuple(times[engine])
            found[engine] = Measured(
                rows, ready.cold_seconds, ready.error, _bytes(worker.ask(False))
            )
    return {engine: found[engine] for engine in engines}


def _bytes(answer: Any) -> int:
    return answer if isinstance(answer, int) else 0


def ratio(row: Mapping[str, Measured]) -> float | None:
    """The best other engine's time relative to ours, the median over rounds."""
    ran = {engine: m for engine, m in row.items() if m.rounds}
    ours = [m for engine, m in ran.items() if engine in OURS]
    others = [m for engine, m in ran.items() if engine not in BESIDE]
    if not ours or not others:
        return None
    own, best = (min(group, key=lambda m: m.seconds) for group in (ours, others))
    return statistics.median(b / a for a, b in zip(own.rounds, best.rounds, strict=False))


def table(title: str, rows: Mapping[str, Mapping[str, str]], engines: Sequence[str]) -> str:
    """Markdown, a row for each model."""
    lines = [f"| {title} | {' | '.join(engines)} |", "|---|" + "---:|" * len(engines)]
    for name, row in rows.items():
        lines.append(f"| {name} | {' | '.join(row.get(engine, '') for engine in engines)} |")
    return "\n".join(lines)


def report(found: Mapping[str, Mapping[str, Measured]], engines: Sequence[str]) -> str:
    """All tables, and failures."""
    times: dict[str, dict[str, str]] = {}
    ratios: list[float] = []
    for name, row in found.items():
        times[name] = {e: f"{m.seconds * 1e3:.3f}" for e, m in row.items() if m.rounds}
        value = ratio(row)
        times[name]["best / ours"] = "" if value is None else f"{value:.2f}"
        ratios += [] if value is None else [value]
    cold = {n: {e: f"{m.cold:.1f}" for e, m in r.items() if m.rounds} for n, r in found.items()}
    peak = {
        n: {e: f"{m.peak / 1e6:.0f}" for e, m in r.items() if m.rounds} for n, r in found.items()
    }
    parts = [table("ms", times, [*engines, "best / ours"])]
    if ratios:
        mean = statistics.geometric_mean(ratios)
        parts.append(f"Geometric mean {mean:.2f}, least {min(ratios):.2f}.")
    parts += [table("s, cold", cold, engines), table("MB", peak, engines)]
    lost = [f"- {n}, {e}: {m.refused}" for n, r in found.items() for e, m in r.items() if m.refused]
    return "\n\n".join([*parts, *(["\n".join(lost)] if lost else [])])


def recorded(path: Path | None) -> dict[str, dict[str, Measured]]:
    """The results of an earlier run in its file."""
    if path is None or not path.is_file():
        return {}
    rows: dict[str, dict[str, dict[str, Any]]] = json.loads(path.read_text())
    return {name: {e: _measured(m) for e, m in row.items()} for name, row in rows.items()}


def _measured(facts: dict[str, Any]) -> Measured:
    facts["rounds"] = tuple(facts["rounds"])
    return Measured(**facts)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", default=",".join(model.name for model in MODELS))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for an answer")
    parser.add_argument("--json", type=Path, help="all that was measured; goes on where it ended")
    add_level(parser)
    asked = parser.parse_args()
    keep_to(asked.cpu)
    native = {"threads": asked.threads, "cpu": asked.cpu}
    cores = sorted(os.sched_getaffinity(0))[: asked.threads]
    os.sched_setaffinity(0, cores)  # inherited by child processes
    engines, found = asked.engines.split(","), recorded(asked.json)
    for name in asked.models.split(","):
        if name in found:
            continue
        found[name] = measured(name, engines, native, asked.rounds, asked.limit)
        value = ratio(found[name])
        print(f"<!-- {name}: {'' if value is None else f'{value:.2f}'} -->", flush=True)
        if asked.json:
            records = {n: {e: asdict(m) for e, m in r.items()} for n, r in found.items()}
            asked.json.write_text(json.dumps(records, indent=1) + "\n")
    print(report(found, engines))


if __name__ == "__main__":
    main()
