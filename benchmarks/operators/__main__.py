"""Times every case on modelcc and its peers: `python -m benchmarks.operators --help`."""

from __future__ import annotations

import fnmatch
import json
import math
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import onnx

import modelcc
from benchmarks.operators import convolutions, dense, movement
from benchmarks.operators.case import Case
from benchmarks.peers import Arrays, Run, loader

ENGINES = ("modelcc", "onnxruntime", "openvino")
FOLDER = Path(__file__).resolve().parents[1] / "models" / "operators"


@dataclass(frozen=True)
class Result:
    """Microseconds by engine, the ratio of the fastest other to modelcc, and the error."""

    case: str
    microseconds: Mapping[str, float]
    ratio: float
    error: float


def cases(patterns: Sequence[str]) -> list[Case]:
    """Those whose ``family/name`` matches one of ``patterns``; all without any."""
    everything = [*convolutions.cases(), *dense.cases(), *movement.cases()]
    chosen = patterns or ("*",)
    return [c for c in everything if any(fnmatch.fnmatch(c.label, p) for p in chosen)]


def prepare(case: Case, folder: Path, threads: int, again: bool) -> str | None:
    """Writes the model and compiles it, unless done before; returns an error message."""
    path = _path(case, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    artifact = path.with_suffix(f".{threads}.mcc")
    if artifact.exists() and not again:
        return None
    onnx.save(case.model(), path)
    try:
        modelcc.compile(path, threads=threads, cache=None).save(artifact)
    except modelcc.ModelError as error:
        return f"{case.label}: {error}".splitlines()[0]
    return None


def _path(case: Case, folder: Path) -> Path:
    return folder / case.family / f"{case.name}.onnx"


def _time(run: Run, feeds: Arrays, calls: int) -> float:
    run(feeds)
    start = time.perf_counter()
    for _ in range(calls):
        run(feeds)
    return 1e6 * (time.perf_counter() - start) / calls


def measure(case: Case, folder: Path, threads: int, rounds: int, seconds: float) -> Result:
    """Engines are interleaved; the ratio is the median over rounds."""
    path, feeds = _path(case, folder), case.feeds()
    runs: dict[str, Run] = {}
    outputs: dict[str, list[np.ndarray]] = {}
    calls: dict[str, int] = {}
    for engine in ENGINES:
        model = path.with_suffix(f".{threads}.mcc") if engine == "modelcc" else path
        try:
            runs[engine] = loader(engine)(model, threads)
            outputs[engine] = [np.array(v) for v in runs[engine](feeds).values()]
        except Exception as error:  # an engine may not support an operator
            print(f"{case.label}: {engine}: {error}".splitlines()[0], file=sys.stderr)
            runs.pop(engine, None)
            continue
        calls[engine] = _calls(runs[engine], feeds, seconds)
    times: dict[str, list[float]] = {engine: [] for engine in runs}
    for turn in range(rounds):
        for engine in runs if turn % 2 == 0 else reversed(runs):
            times[engine].append(_time(runs[engine], feeds, calls[engine]))
    others = [e for e in runs if e != "modelcc"]
    best = min(others, key=lambda e: statistics.median(times[e]))
    ratio = statistics.median(b / a for a, b in zip(times["modelcc"], times[best], strict=True))
    medians = {engine: statistics.median(values) for engine, values in times.items()}
    return Result(case.label, medians, ratio, _error(outputs["modelcc"], outputs[best]))


def _calls(run: Run, feeds: Arrays, seconds: float) -> int:
    """How many calls take about ``seconds``."""
    best = min(_time(run, feeds, 1) for _ in range(3))
    return max(1, min(2000, math.ceil(1e6 * seconds / best)))


def _error(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> float:
    """Largest difference relative to the largest element."""
    pairs = [(np.float64(a), np.float64(b)) for a, b in zip(ours, theirs, strict=False)]
    return max(float(np.abs(a - b).max() / (np.abs(b).max() or 1)) for a, b in pairs)


def table(results: Sequence[Result]) -> str:
    """Markdown, slowest relative to the others first."""
    lines = [f"| case | {' | '.join(f'{e} µs' for e in ENGINES)} | ratio | error |"]
    lines.append("|---" * (len(ENGINES) + 3) + "|")
    for r in sorted(results, key=lambda r: r.ratio):
        times = [f"{r.microseconds[e]:.1f}" if e in r.microseconds else "–" for e in ENGINES]
        lines.append(f"| {r.case} | {' | '.join(times)} | {r.ratio:.2f} | {r.error:.0e} |")
    mean = math.exp(statistics.mean(math.log(r.ratio) for r in results))
    below = sum(r.ratio < 1 for r in results)
    lines.append("")
    lines.append(f"{len(results)} cases, geometric mean {mean:.3f}, {below} below 1.")
    return "\n".join(lines)


@click.command()
@click.argument("patterns", nargs=-1)
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER)
@click.option("--threads", default=1, show_default=True)
@click.option("--rounds", default=5, show_default=True)
@click.option("--seconds", default=0.01, show_default=True, help="Length of a turn.")
@click.option("--again", is_flag=True, help="Compile again what has been compiled.")
@click.option("--compile-only", is_flag=True, help="Do not time.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON with all figures.")
def main(
    patterns: tuple[str, ...],
    folder: Path,
    threads: int,
    rounds: int,
    seconds: float,
    again: bool,
    compile_only: bool,
    out: Path | None,
) -> None:
    """Time cases whose family/name one of PATTERNS matches (all without any)."""
    chosen = cases(patterns)
    failed = [problem for c in chosen if (problem := prepare(c, folder, threads, again))]
    for problem in failed:
        click.echo(problem, err=True)
    if compile_only:
        return
    ready = [c for c in chosen if _path(c, folder).with_suffix(f".{threads}.mcc").exists()]
    results = [measure(c, folder, threads, rounds, seconds) for c in ready]
    click.echo(table(results))
    if out is not None:
        out.write_text(json.dumps([asdict(r) for r in results], indent=1))


if __name__ == "__main__":
    main()
