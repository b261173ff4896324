"""How far tuning compensates a wrong machine model: ``python -m benchmarks.tuning MODEL …``.

Each model is tuned with this machine's model and with deliberately wrong ones, each time with the
same budget and an empty database.  The default and the tuned model then run interleaved in this
process.  ``right`` is the time of the default of the right model over the time of a column: above 1
it is faster.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import click

from benchmarks.machine import describe
from modelcc.driver import compile_model, target_of
from modelcc.feeds.random import Array
from modelcc.model_tuning.tuning import TuningRequest, tune_model
from modelcc.options import Options
from modelcc.targets.base import BuildConfig
from modelcc.targets.cpu.machine import CpuModel
from modelcc.targets.native.cpu_target import CpuTarget
from modelcc.verification.verification import Request as Verified
from modelcc.verification.verification import subject_of

Numbers = Mapping[str, float]

RIGHT = "right"
CACHES = ("l1_bytes", "l2_bytes", "l3_bytes")
RATES = ("l1_bandwidth", "l2_bandwidth", "l3_bandwidth", "memory_bandwidth")
ARITHMETIC: Numbers = MappingProxyType({"fmas": 1, "loads": 4, "fma_latency": 10})
FEWER_REGISTERS: Numbers = MappingProxyType({"vector_registers": 16})
"""Half of AVX-512's; no change on a machine without more."""
AVX2: Numbers = MappingProxyType({"vector_bits": 256, "vector_registers": 16})


@dataclass(frozen=True)
class Setting:
    """Seconds of a run by default and tuned, with a machine model of wrong ``numbers``."""

    name: str
    numbers: Numbers
    schedules: int
    direct: int
    tuning_seconds: float
    default: float
    tuned: float


@dataclass(frozen=True)
class Result:
    """A model in all settings; the first is the right machine model."""

    model: str
    budget: float
    threads: int
    settings: tuple[Setting, ...]


def wrong_numbers(right: CpuModel) -> Mapping[str, Numbers]:
    """Wrong machine models, by what is wrong."""
    other = CpuModel()
    names = (*CACHES, *RATES, "fma_latency")
    return {
        RIGHT: {},
        "zen 5's caches": {name: getattr(other, name) for name in names},
        "half the caches": {name: getattr(right, name) // 2 for name in CACHES},
        "wrong arithmetic": ARITHMETIC,
        "16 registers": FEWER_REGISTERS,
        "avx2's tiles": AVX2,
    }


@dataclass(frozen=True)
class Bench:
    """One model, ``budget`` seconds for each tuning, ``rounds`` turns; files are written to
    ``folder``."""

    model: Path
    budget: float
    rounds: int
    threads: int
    folder: Path
    only: str = ""

    def result(self) -> Result:
        """All settings, tuned one after the other, then measured interleaved."""
        options = Options(threads=self.threads)
        target = target_of(options)
        assert isinstance(target, CpuTarget)
        feeds = subject_of(Verified(self.model, options, BuildConfig(), {}, {}, 0)).feeds
        settings: list[Setting] = []
        runs: list[Callable[[], object]] = []
        known = wrong_numbers(target.cpu)
        chosen = {n: v for n, v in known.items() if n == RIGHT or re.search(self.only, n)}
        for number, (name, numbers) in enumerate(chosen.items()):
            own = replace(options, machine=tuple(numbers.items()))
            setting, text = self._tuned(name, own, feeds, self.folder / f"{number}.sqlite")
            settings.append(setting)
            runs += [self._run(one, feeds) for one in (own, replace(own, schedule=text))]
        clock = time.process_time if self.threads == 1 else time.perf_counter
        times = iter(_by_turns(runs, self.rounds, clock))
        timed = tuple(replace(one, default=next(times), tuned=next(times)) for one in settings)
        return Result(self.model.stem, self.budget, self.threads, timed)

    def _tuned(
        self, name: str, options: Options, feeds: Mapping[str, Array], database: Path
    ) -> tuple[Setting, str]:
        start = time.monotonic()
        place = BuildConfig(self.folder)
        tuning = tune_model(TuningRequest(self.model, options, feeds, database, self.budget, place))
        seconds = time.monotonic() - start
        numbers = dict(options.machine)
        return Setting(
            name, numbers, len(tuning.schedules), len(tuning.above), seconds, 0, 0
        ), tuning.text

    def _run(self, options: Options, feeds: Mapping[str, Array]) -> Callable[[], object]:
        compiled = compile_model(self.model, options, BuildConfig(self.folder))
        session = compiled.target.load(compiled.artifact, self.threads)
        return lambda: session.run(feeds)


def _by_turns(
    runs: Sequence[Callable[[], object]], rounds: int, clock: Callable[[], float]
) -> list[float]:
    """Median seconds of each."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds + 1):
        for run, own in zip(runs, times, strict=True):
            start = clock()
            run()
            own.append(clock() - start)
    return [median(own[1:]) for own in times]


def lines(result: Result) -> Iterator[str]:
    """The result as a table."""
    right = result.settings[0].default
    yield f"{result.model}, {result.threads} thread(s), budget {result.budget:g} s"
    yield f"  {'machine model':18}{'default ms':>11}{'tuned ms':>10}{'gain':>7}" + (
        f"{'right: default':>16}{'tuned':>7}{'schedules':>11}{'direct':>8}{'took s':>8}"
    )
    for one in result.settings:
        yield (
            f"  {one.name:18}{1e3 * one.default:11.3f}{1e3 * one.tuned:10.3f}"
            f"{one.default / one.tuned:7.3f}{right / one.default:16.3f}{right / one.tuned:7.3f}"
            f"{one.schedules:11}{one.direct:8}{one.tuning_seconds:8.0f}"
        )


@click.command()
@click.argument("models", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--budget", default=60.0, show_default=True, help="Seconds for each tuning.")
@click.option("--rounds", default=60, show_default=True, help="Turns in the comparison.")
@click.option("--threads", default=1, show_default=True)
@click.option("--only", default="", help="Regular expression that wrong models must contain.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write JSON to this file.")
def main(
    models: tuple[Path, ...],
    budget: float,
    rounds: int,
    threads: int,
    only: str,
    output: Path | None,
) -> None:
    """Tune MODELS from the right machine model and from wrong ones."""
    results: list[dict[str, Any]] = []
    for model in models:
        with TemporaryDirectory() as folder:
            result = Bench(model, budget, rounds, threads, Path(folder), only).result()
        results.append(asdict(result))
        click.echo("\n".join(lines(result)))
        if output is not None:
            output.write_text(json.dumps({"machine": describe(), "results": results}, indent=1))


if __name__ == "__main__":
    main()
