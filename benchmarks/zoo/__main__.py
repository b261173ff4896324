"""Command line of the zoo."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from benchmarks.zoo.build import build
from benchmarks.zoo.catalogue import MODELS, find
from benchmarks.zoo.export import check, describe, export, file_name, update_index

FOLDER = Path(__file__).resolve().parents[1] / "models"


@click.command()
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Make every model.")
@click.option("--out", type=click.Path(path_type=Path), default=FOLDER, help="Target folder.")
@click.option("--batch", default=1, show_default=True, help="Batch size.")
@click.option("--dynamic", is_flag=True, help="Make the batch a symbolic dimension.")
@click.option("--seed", default=0, show_default=True, help="Seed of the weights.")
def main(
    names: tuple[str, ...], everything: bool, out: Path, batch: int, dynamic: bool, seed: int
) -> None:
    """Make ONNX models with random weights; without NAMES, list the ones there are."""
    console = Console()
    if not names and not everything:
        console.print("\n".join(model.name for model in MODELS))
        return
    try:
        models = MODELS if everything else tuple(find(name) for name in names)
    except KeyError as error:
        raise click.BadParameter(str(error.args[0])) from error
    out.mkdir(parents=True, exist_ok=True)
    size = None if dynamic else batch
    with Progress(console=console) as progress:
        task = progress.add_task("models", total=len(models))
        for model in models:
            path = out / file_name(model, size)
            progress.update(task, description=path.stem)
            if not path.exists():
                module = build(model, seed)
                partial = path.with_suffix(".partial")
                export(model, module, partial, size)
                error = check(model, module, partial, size)
                partial.rename(path)
                update_index(out, path.stem, describe(model, path, size))
                progress.console.print(f"{path.name}: max error against torch {error:.1e}")
            progress.advance(task)


if __name__ == "__main__":
    main()
