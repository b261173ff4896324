"""Command line of the replay."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from rich.console import Console
from rich.progress import Progress

from benchmarks.replay.compare import Comparison, compare
from benchmarks.replay.records import Job, Outcome, Setting
from benchmarks.replay.report import diffs, listed, summary, verdict
from benchmarks.replay.run import Limits, on_tree, run_all
from benchmarks.replay.small import SMALL
from benchmarks.trees import ROOT, TreeError, sources_of

PARTS = 16
"""Number of processes for the op matrix."""

QUICK = f"1/{PARTS}"
"""The fraction of it for the quick form."""

WIDTH = 160
"""Output width without a terminal."""

CPUS = "native,x86-64-v2" if platform.machine() == "x86_64" else "native"


def jobs_of(
    folder: Path, models: Sequence[str], quick: bool, settings: tuple[Setting, ...]
) -> list[Job]:
    """What to compile: the given names, else all models and the op matrix, which is called
    `ops`."""
    files = {} if quick else {path.stem: str(path.resolve()) for path in folder.glob("*.onnx")}
    unknown = [name for name in models if name not in (*files, *SMALL, "ops")]
    if unknown:
        known = ", ".join((*sorted(files), *SMALL, "ops"))
        raise click.BadParameter(f"no model {unknown[0]!r} in {folder}; there are {known}")
    if not models and not quick and not files:
        raise click.BadParameter(
            f"no models in {folder}; make bench makes them, --quick needs none"
        )
    small = ",".join(name for name in SMALL if not models or name in models)
    found = [Job("", "", "small", small, settings)] if small else []
    if not models or "ops" in models:
        parts = (QUICK,) if quick else tuple(f"{n + 1}/{PARTS}" for n in range(PARTS))
        found += (Job("", "", "ops", part, settings) for part in parts)
    wanted = sorted(name for name in files if not models or name in models)
    return [*found, *(Job("", "", "file", files[name], settings) for name in wanted)]


def replay(
    jobs: Sequence[Job], trees: tuple[Path, Path], place: Limits, console: Console
) -> tuple[list[Outcome], list[Outcome]]:
    """The outcomes of `jobs` on both trees, with progress on `console`."""
    halves = on_tree(jobs, "before", trees[0]), on_tree(jobs, "now", trees[1])
    doubled = [job for pair in zip(*halves, strict=True) for job in pair]
    start = time.perf_counter()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("compiling", total=len(doubled))

        def done(job: Job, outcomes: list[Outcome]) -> None:
            progress.advance(task)
            kernels = sum(len(one.kernels) for one in outcomes)
            seconds = time.perf_counter() - start
            console.print(
                f"{seconds:5.0f} s  {job.tree:7}{job.label}: {kernels} kernels", style="dim"
            )

        found = run_all(doubled, place, done)
    before, now = ([one for job in half for one in found[job]] for half in halves)
    return before, now


def write_records(path: Path, before: Sequence[Outcome], now: Sequence[Outcome]) -> None:
    """Writes all results as JSON."""
    trees = {"before": before, "now": now}
    records = {tree: [asdict(one) for one in outcomes] for tree, outcomes in trees.items()}
    path.write_text(json.dumps(records, indent=1) + "\n")


def _words(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _settings(
    targets: Sequence[str], cpus: Sequence[str], threads: Sequence[str]
) -> tuple[Setting, ...]:
    names = ["" if cpu == "native" else cpu for cpu in cpus]
    return tuple(Setting(t, cpu, int(n)) for t in targets for cpu in names for n in threads)


@click.command()
@click.argument("base")
@click.option("--tree", default=str(ROOT), help="The tree now, as BASE; without, this one.")
@click.option("--folder", type=click.Path(path_type=Path), default=ROOT / "benchmarks/models")
@click.option(
    "--models", default="", callback=_words, help="Names by comma, ops for the op matrix."
)
@click.option("--quick", is_flag=True, help="Small models and a share of the op matrix.")
@click.option("--target", "targets", default="native,c", show_default=True, callback=_words)
@click.option("--cpu", "cpus", default=CPUS, show_default=True, callback=_words)
@click.option("--threads", default="1,2", show_default=True, callback=_words)
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Processes at a time.")
@click.option("--timeout", default=1800.0, show_default=True, help="Seconds for a process.")
@click.option("--json", "records", type=click.Path(path_type=Path), help="File for all records.")
@click.option("--diff", "name", default="", help="Show texts of this kernel or node, MODEL:NAME.")
def main(
    base: str,
    tree: str,
    folder: Path,
    models: tuple[str, ...],
    quick: bool,
    targets: tuple[str, ...],
    cpus: tuple[str, ...],
    threads: tuple[str, ...],
    jobs: int,
    timeout: float,
    records: Path | None,
    name: str,
) -> None:
    """List the kernels that the tree BASE, a commit or a folder, makes otherwise than this one.

    The exit status is 1 if there are any, or a model compiles with one tree only; 2 if there was
    nothing to compare.
    """
    wanted = jobs_of(folder, models, quick, _settings(targets, cpus, threads))
    with TemporaryDirectory() as place:
        here = Path(place)
        try:
            trees = sources_of(base, here / "before"), sources_of(tree, here / "now")
        except TreeError as error:
            raise click.BadParameter(str(error)) from error
        texts = here / "texts"
        texts.mkdir()
        work = Limits(jobs, timeout)
        keep = str(texts) if name else ""
        kept = [replace(job, texts=keep) for job in wanted]
        before, now = replay(kept, trees, work, Console(stderr=True))
        found = compare(before, now)
        if records is not None:
            write_records(records, before, now)
        _print(found, targets)
        if name:
            click.echo("\n".join(diffs(found, name, texts)))
    if found.differences:
        raise SystemExit(1)
    if not found.kernels:
        raise click.UsageError("neither tree made a kernel: there was nothing to compare")


def _print(found: Comparison, targets: Sequence[str]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    for line in listed(found):
        console.print(line, markup=False, soft_wrap=True)
    console.print(summary(found, targets))
    console.print(verdict(found))


if __name__ == "__main__":
    main()
