"""Command line of the zoo."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from benchmarks.zoo.build import build
from benchmarks.zoo.catalogue import MODELS, SHORT, SMALL, STANDARD, variant
from benchmarks.zoo.export import check, describe, export, update_index
from benchmarks.zoo.records import Model

FOLDER = Path(__file__).resolve().parents[1] / "models"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Those of a complete comparison.")
@click.option("--short", is_flag=True, help="Those of a short comparison.")
@click.option("--small", is_flag=True, help="NAME_small of all that are large.")
@click.option("--out", type=click.Path(path_type=Path), default=FOLDER, help="Target folder.")
@click.option("--seed", default=0, show_default=True, help="Seed of the weights.")
def main(
    names: tuple[str, ...], everything: bool, short: bool, small: bool, out: Path, seed: int
) -> None:
    """Make ONNX models with random weights; without NAMES, list the ones there are.

    NAME_b8 has a batch of eight, NAME_dynamic a symbolic one, NAME_small few pixels or tokens.
    Files that exist are kept.
    """
    console = Console()
    names += STANDARD if everything else SHORT if short else ()
    names += tuple(model.name for model in SMALL) if small else ()
    if not names:
        console.print("\n".join(model.name for model in MODELS))
        return
    try:
        wanted = {out / f"{name}.onnx": variant(name) for name in names}
    except KeyError as error:
        raise click.BadParameter(str(error.args[0])) from error
    out.mkdir(parents=True, exist_ok=True)
    missing = {path: model for path, model in wanted.items() if not path.exists()}
    if missing:
        make(missing, seed, console)


def make(wanted: dict[Path, tuple[Model, int | None]], seed: int, console: Console) -> None:
    """Exports the models, checks each against torch, and adds them to the folder's index."""
    with Progress(console=console) as progress:
        task = progress.add_task("models", total=len(wanted))
        for path, (model, batch) in wanted.items():
            progress.update(task, description=path.stem)
            module = build(model, seed)
            partial = path.with_suffix(".partial")
            export(model, module, partial, batch)
            error = check(model, module, partial, batch)
            partial.rename(path)
            update_index(path.parent, path.stem, describe(model, path, batch))
            progress.console.print(f"{path.name}: max error against torch {error:.1e}")
            progress.advance(task)


if __name__ == "__main__":
    main()
