"""Runs engines side by side on the same models: `python -m benchmarks.compare --help`."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path

import click
from rich.console import Console

from benchmarks import machine, peers
from benchmarks.lock import exclusively
from benchmarks.plot import draw
from benchmarks.results import Comparison, markdown, table, to_json
from benchmarks.rows import Row
from benchmarks.side_by_side import Plan, compare, cores
from benchmarks.summary import means, standings
from benchmarks.zoo.catalogue import SHORT, STANDARD

FOLDER = Path(__file__).resolve().parent


def _versions(names: Sequence[str]) -> dict[str, str]:
    """Versions of the installed engines."""
    found = {"Python": platform.python_version()}
    for name in names:
        package = peers.PACKAGES.get(name, name)
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _paths(names: Sequence[str], folder: Path) -> list[Path]:
    """Models by name in `folder` or by path."""
    paths = [Path(name) if name.endswith(".onnx") else folder / f"{name}.onnx" for name in names]
    for path in paths:
        if not path.exists():
            raise click.BadParameter(f"no {path}; python -m benchmarks.zoo makes models")
    return [path.resolve() for path in paths]


def _sizes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """From `input=1x3x224x224` to shapes by input name."""
    pairs = [text.rsplit("=", 1) for text in texts]
    return {name: tuple(int(size) for size in shape.split("x")) for name, shape in pairs}


def _write(found: Comparison, folder: Path) -> Path:
    """Writes Markdown, JSON and a plot; returns their path without suffix."""
    folder.mkdir(parents=True, exist_ok=True)
    digits = "".join(character for character in found.date if character.isdigit())
    stem = folder / f"compare-{digits}"
    stem.with_suffix(".md").write_text(markdown(found))
    stem.with_suffix(".json").write_text(to_json(found))
    draw(found, stem.with_suffix(".png"))
    return stem


def _words(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _engines(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    chosen = tuple(peers.LOADERS) if text == "all" else tuple(filter(None, text.split(",")))
    unknown = [name for name in chosen if name not in peers.LOADERS]
    if unknown:
        raise click.BadParameter(f"no engine {unknown[0]!r}; there are {', '.join(peers.LOADERS)}")
    return chosen


def _print(console: Console, rows: Sequence[Row], reference: str) -> None:
    console.print(table(rows, reference))
    for row in rows:
        if row.reason:
            console.print(f"{row.peer} is not available: {row.reason}", style="dim")
    for one in standings(rows):
        strict = "" if one.strict_faster is None else f" (strict: {one.strict_faster:.2f} ×)"
        text = f"modelcc is {one.faster:.2f} × as fast as {one.best.peer}{strict}"
        console.print(text, style="bold")


@click.command()
@click.option("--models", default="", callback=_words, help="Names or .onnx paths, by comma.")
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER / "models")
@click.option("--threads", default="1,2", show_default=True, callback=_words)
@click.option(
    "--peers",
    "engines",
    default=",".join(peers.DEFAULT),
    show_default=True,
    callback=_engines,
    help="Engines by comma, or all.",
)
@click.option("--reference", default="onnxruntime", show_default=True, help="Engine to relate to.")
@click.option("--rounds", default=10, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=0.2, show_default=True, help="Length of a turn.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds to load or compile.")
@click.option("--shape", "shapes", multiple=True, help="INPUT=1x3x224x224, for a symbolic input.")
@click.option("--short", is_flag=True, help="Few models and rounds: a few minutes.")
@click.option("--out", type=click.Path(path_type=Path), default=FOLDER / "results")
@click.option(
    "--lock",
    type=click.Path(path_type=Path),
    help="Hold this file's lock, as flock(1) does, while timing.",
)
def main(
    models: tuple[str, ...],
    folder: Path,
    threads: tuple[str, ...],
    engines: tuple[str, ...],
    reference: str,
    rounds: int,
    seconds: float,
    timeout: float,
    shapes: tuple[str, ...],
    short: bool,
    out: Path,
    lock: Path | None,
) -> None:
    """Compare modelcc with other engines on latency, accuracy, compile time and memory."""
    if short:
        rounds, seconds = min(rounds, 5), min(seconds, 0.1)
    plan = Plan(engines, reference, rounds, seconds, timeout, lock)
    console = Console()
    described = machine.describe()
    with exclusively(lock):
        peaks = tuple(machine.peaks(cores(int(count))) for count in threads)
    date = f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}"
    rows: list[Row] = []
    versions = _versions(engines)
    stem = out
    for path in _paths(models or (SHORT if short else STANDARD), folder):
        for peak in peaks:
            here = compare(plan, path, peak, _sizes(shapes))
            _print(console, here, reference)
            rows += here
        # After every model, so that an interrupted run leaves its results.
        found = Comparison(described, date, reference, versions, peaks, tuple(rows))
        stem = _write(found, out)
    strict = means(standings(rows), strict=True)
    for (count, batch), mean in means(standings(rows)).items():
        also = f", strict {strict[count, batch]:.3f}" if (count, batch) in strict else ""
        text = f"Geometric mean, batch {batch}, {count} core(s): {mean:.3f}{also}"
        console.print(text, style="bold")
    console.print(f"Wrote {stem} (.md, .json, .png)")


if __name__ == "__main__":
    main()
