"""Training steps by modelcc, PyTorch and JAX, in turns.

    python -m benchmarks.training [--threads N] [--models A,B] [--engines C,D] [--json FILE]

Every engine has a process for each model, of which one at a time is busy, on as many cores as
threads.  All begin with the same parameters; their losses over the first steps are compared.
With one thread times are of the processor, so other work on the machine counts little.  Prints
Markdown: milliseconds of a step (medians over rounds), how many times as fast as eager PyTorch and
as the best other engine modelcc is, seconds of the first step with empty caches, and of modelcc's
in another process with the caches filled, and the most memory of each process, while it runs and
in all.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.engine_worker import Worker
from benchmarks.training.engines import CHECKED_STEPS, ENGINES, Task, Trained, serve
from benchmarks.training.parameters import write_parameters
from benchmarks.training.shapes import BATCHES

OURS = "modelcc"


@dataclass(frozen=True)
class Measured:
    """An engine on a model: seconds of a step in each round, of the first one, bytes while it runs
    and in all, first losses; or the reason of a failure."""

    rounds: tuple[float, ...] = ()
    cold: float = 0.0
    cached: float = 0.0
    peak: int = 0
    whole: int = 0
    losses: tuple[float, ...] = ()
    failed: str = ""

    @property
    def seconds(self) -> float:
        """Seconds of a step."""
        return statistics.median(self.rounds)


def measured(model: str, asked: argparse.Namespace) -> dict[str, Measured]:
    """All engines on a model: prepared one after the other, then interleaved."""
    found: dict[str, Measured] = {}
    workers: dict[str, tuple[Worker, Trained, float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True)))
        file = write_parameters(model, folder / "parameters.npz")
        for engine in asked.engines.split(","):
            task = Task(model, file, asked.threads, folder / engine)
            worker = Worker(serve, (engine, task), asked.limit)
            stack.callback(worker.close)
            ready = worker.answer()
            if not isinstance(ready, Trained):
                found[engine] = Measured(failed=ready.reason)
                continue
            workers[engine] = worker, ready, _cached(engine, task, asked.limit)
        times: dict[str, list[float]] = {engine: [] for engine in workers}
        for _ in range(asked.rounds):
            for engine, (worker, _, _) in workers.items():
                times[engine].append(worker.ask(asked.seconds))
        for engine, (worker, ready, cached) in workers.items():
            peak, whole = worker.ask(0)
            rows = tuple(times[engine])
            found[engine] = Measured(rows, ready.cold_seconds, cached, peak, whole, ready.losses)
    return found


def _cached(engine: str, task: Task, limit: float) -> float:
    """Seconds of the first step in a process with filled compile caches."""
    if engine != OURS:
        return 0.0
    worker = Worker(serve, (engine, task), limit)
    ready = worker.answer()
    worker.close()
    return ready.cold_seconds if isinstance(ready, Trained) else 0.0


def ratio(row: Mapping[str, Measured], others: Sequence[str]) -> float | None:
    """The best of ``others``' time relative to ours, the median over rounds."""
    ran = [row[engine] for engine in others if engine in row and row[engine].rounds]
    if not ran or OURS not in row or not row[OURS].rounds:
        return None
    best = min(ran, key=lambda m: m.seconds)
    return statistics.median(b / a for a, b in zip(row[OURS].rounds, best.rounds, strict=True))


def table(title: str, rows: Mapping[str, Mapping[str, str]], columns: Sequence[str]) -> str:
    """Markdown, a row for each model."""
    lines = [f"| {title} | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    for name, row in rows.items():
        lines.append(f"| {name} | {' | '.join(row.get(column, '') for column in columns)} |")
    return "\n".join(lines)


def _texts(
    rows: Mapping[str, Mapping[str, Measured]], text: Callable[[Measured], str]
) -> dict[str, dict[str, str]]:
    return {name: {engine: text(m) for engine, m in row.items()} for name, row in rows.items()}


def report(found: Mapping[str, Mapping[str, Measured]], engines: Sequence[str]) -> str:
    """All tables, and failures."""
    others = [engine for engine in engines if engine not in (OURS, "eager")]
    compared = {"eager / ours": ["eager"], "best / ours": others}
    times: dict[str, dict[str, str]] = {}
    ratios: dict[str, list[float]] = {column: [] for column in compared}
    for name, row in found.items():
        times[name] = {e: f"{m.seconds * 1e3:.3f}" for e, m in row.items() if m.rounds}
        for column, peers in compared.items():
            value = ratio(row, peers)
            times[name][column] = "" if value is None else f"{value:.2f}"
            ratios[column] += [] if value is None else [value]
    parts = [table("ms of a step", times, [*engines, *compared])]
    for column, values in ratios.items():
        if values:
            mean = statistics.geometric_mean(values)
            parts.append(f"{column}: geometric mean {mean:.2f}, least {min(values):.2f}.")
    ran = {n: {e: m for e, m in r.items() if m.rounds} for n, r in found.items()}
    cold = _texts(ran, lambda m: f"{m.cold:.1f}")
    for name, row in ran.items():
        cold[name]["cached"] = f"{row[OURS].cached:.2f}" if OURS in row else ""
    peak = _texts(ran, lambda m: f"{m.peak / 1e6:.0f} / {m.whole / 1e6:.0f}")
    losses = _texts(ran, lambda m: f"{m.losses[-1]:.6f}")
    parts += [
        table("s of the first step", cold, [*engines, "cached"]),
        table("MB, running / in all", peak, engines),
        table(f"loss of step {CHECKED_STEPS}", losses, engines),
    ]
    lost = [f"- {n}, {e}: {m.failed}" for n, r in found.items() for e, m in r.items() if m.failed]
    return "\n\n".join([*parts, *(["\n".join(lost)] if lost else [])])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--models", default=",".join(BATCHES))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3, help="of a round")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for an answer")
    parser.add_argument("--json", type=Path, help="file for all that was measured")
    asked = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[: asked.threads]
    os.sched_setaffinity(0, cores)  # inherited by child processes
    found: dict[str, dict[str, Measured]] = {}
    for model in asked.models.split(","):
        found[model] = measured(model, asked)
        print(f"<!-- {model} -->", flush=True)
        if asked.json:
            records = {n: {e: asdict(m) for e, m in r.items()} for n, r in found.items()}
            asked.json.write_text(json.dumps(records, indent=1) + "\n")
    print(report(found, asked.engines.split(",")))


if __name__ == "__main__":
    main()
