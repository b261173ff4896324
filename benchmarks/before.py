"""This tree against an older commit: `python -m benchmarks.before COMMIT`.

Each tree compiles each model; identical artifacts are not measured.  The others run interleaved,
each on the runtime of its own tree.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean
from tempfile import TemporaryDirectory

import click

from benchmarks.feeds import feeds_for
from benchmarks.messages import Failed, Task
from benchmarks.pool import Timing, Worker, measure, start
from benchmarks.side_by_side import cores
from benchmarks.trees import ROOT, environment_of, sources_of

COMPILE = """
import sys
import modelcc
model, threads, cpu, out = sys.argv[1:]
modelcc.compile(model, threads=int(threads), cpu=cpu, cache=None).save(out)
"""


@dataclass(frozen=True)
class Trees:
    """Source folders before and now; `threads` and `cpu` are what they compile for."""

    before: Path
    now: Path
    threads: int
    cpu: str
    timeout: float

    def __iter__(self) -> Iterator[tuple[str, Path]]:
        yield "before", self.before
        yield "now", self.now


def compiled(model: Path, trees: Trees, folder: Path) -> dict[str, Path]:
    """The artifact of each tree."""
    made: dict[str, Path] = {}
    for name, sources in trees:
        made[name] = folder / f"{model.stem}.{name}.mcc"
        settings = (str(model), str(trees.threads), trees.cpu, str(made[name]))
        subprocess.run(
            (sys.executable, "-c", COMPILE, *settings),
            cwd=folder, env=environment_of(sources), check=True,
        )  # fmt: skip
    return made


def timings(
    model: Path, trees: Trees, made: dict[str, Path], rounds: int, seconds: float
) -> tuple[Timing, Timing]:
    """Timings of the old and of this tree; RuntimeError if one of them does not run."""
    task = Task("modelcc", model, trees.threads, cores(trees.threads), feeds_for(model, {}))
    workers: list[Worker] = []
    for name, sources in trees:
        worker = start(replace(task, model=made[name]), trees.timeout, sources)
        if isinstance(worker, Failed):
            raise RuntimeError(f"{model.stem}, {name}: {worker.reason}")
        workers.append(replace(worker, peer=name))
    found = measure(workers, rounds, seconds, trees.timeout, None)
    before, now = found["before"], found["now"]
    if not isinstance(before, Timing) or not isinstance(now, Timing):
        raise RuntimeError(f"{model.stem} stopped: {before} {now}")
    return before, now


@click.command()
@click.argument("commit")
@click.option("--folder", type=click.Path(path_type=Path), default=ROOT / "benchmarks/models")
@click.option("--models", default="", help="Names, comma-separated; without, all of the folder.")
@click.option("--threads", default=1, show_default=True)
@click.option("--cpu", default="", help="Processor to compile for.")
@click.option("--rounds", default=9, show_default=True)
@click.option("--seconds", default=0.4, show_default=True, help="Of each turn.")
def main(
    commit: str, folder: Path, models: str, threads: int, cpu: str, rounds: int, seconds: float
) -> None:
    """How many times as long the tree at COMMIT takes: 1.1 is a tenth more than now."""
    names = models.split(",") if models else sorted(p.stem for p in folder.glob("*.onnx"))
    ratios: list[float] = []
    with TemporaryDirectory() as place:
        here = Path(place)
        trees = Trees(sources_of(commit, here), ROOT / "src", threads, cpu, timeout=600)
        for name in names:
            model = (folder / f"{name}.onnx").resolve()
            made = compiled(model, trees, here)
            same = made["before"].read_bytes() == made["now"].read_bytes()
            if same:
                click.echo(f"{name:32} the same code")
                ratios.append(1.0)
            else:
                before, now = timings(model, trees, made, rounds, seconds)
                ratios.append(now.ratio(before))
                click.echo(f"{name:32}{before.median():9.2f} ms{now.median():9.2f} ms"
                           f"{ratios[-1]:8.3f}")  # fmt: skip
            for file in made.values():
                file.unlink()
    click.echo(f"geometric mean {geometric_mean(ratios):.3f}, least {min(ratios):.3f}")


if __name__ == "__main__":
    main()
