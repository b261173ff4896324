"""Every model of the bars, compiled and compared with ONNX Runtime."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
from rich.console import Console

from benchmarks.accuracy.results import (
    HEADINGS,
    SIZE_HEADINGS,
    STEP_HEADINGS,
    Found,
    markdown,
    rows,
    size_rows,
    step_rows,
    table,
    to_json,
)
from benchmarks.accuracy.subjects import Subject, light, real, zoo
from benchmarks.zoo.catalogue import QUICK

FOLDER = Path(__file__).parent.parent
BACKENDS = {"both": "llvm,c", "devices": "opencl,webgpu"}


def examine(kind: str, subject: Subject, backends: str, sizes: int, timeout: float) -> Found:
    """One model in a separate process, so that a crash affects only its row."""
    name = subject.path.stem
    command = [sys.executable, "-m", "benchmarks.accuracy.worker", kind, str(subject.path)]
    try:
        done = subprocess.run(
            [*command, backends, str(sizes)], capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return Found(name, kind, None, f"not finished after {timeout:g} s")
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        ended = f"ended with {done.returncode}: {said[-1].strip() if said else ''}"
        return Found(name, kind, None, ended[:200])
    return Found(name, kind, json.loads(done.stdout.splitlines()[-1]))


def _words(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


@click.command()
@click.option(
    "--models", default="", callback=_words, help="Only these, by comma; small: for slow devices."
)
@click.option("--folder", type=click.Path(path_type=Path), default=FOLDER / "models")
@click.option(
    "--real", "trained", type=click.Path(path_type=Path), help="Folder of trained models."
)
@click.option(
    "--backend",
    default="llvm",
    show_default=True,
    help="llvm, c, a target like opencl:spirv, several by comma, both (llvm,c) or devices.",
)
@click.option("--sizes", default=1, show_default=True, help="Sizes of symbolic dimensions to try.")
@click.option("--light/--no-light", "lights", default=True, help="Those of the onnx wheel.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds for one model.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--out", type=click.Path(path_type=Path), help="Write Markdown here.")
def main(
    models: tuple[str, ...],
    folder: Path,
    trained: Path | None,
    backend: str,
    sizes: int,
    lights: bool,
    timeout: float,
    as_json: bool,
    out: Path | None,
) -> None:
    """Compile every model and compare it with ONNX Runtime; exit code 1 if a bar is missed."""
    console = Console(stderr=as_json)
    subjects: list[tuple[str, Subject]] = []
    if (folder / "index.json").exists():
        subjects += [("zoo", subject) for subject in zoo(folder.resolve())]
    if trained is not None:
        subjects += [("real", subject) for subject in real(trained.resolve())]
    if lights:
        subjects += [("light", subject) for subject in light()]
    wanted = {*models, *(QUICK if "small" in models else ())}
    chosen = [(k, s) for k, s in subjects if not models or s.path.stem in wanted]
    found: list[Found] = []
    for kind, subject in chosen:
        with console.status(subject.path.stem):
            found.append(examine(kind, subject, BACKENDS.get(backend, backend), sizes, timeout))
        console.print(*("  ".join(filter(None, row)) for row in rows(found[-1])), sep="\n")
    if as_json:
        click.echo(to_json(found))
    else:
        console.print(table(HEADINGS, (row for f in found for row in rows(f))))
        console.print(table(STEP_HEADINGS, (row for f in found for row in step_rows(f))))
        if sizes > 1:
            console.print(table(SIZE_HEADINGS, (row for f in found for row in size_rows(f))))
    if out is not None:
        out.write_text(markdown(found))
    sys.exit(1 if any(f.failures for f in found) or not found else 0)


if __name__ == "__main__":
    main()
