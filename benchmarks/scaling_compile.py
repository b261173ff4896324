"""Scaling of compile time with the number of nodes, for families of models.

`python -m benchmarks.scaling_compile [FAMILY...] [--share 0.25]` prints a row for each family: the
CPU seconds for a quarter, a half and all of its maximum number of nodes (times `--share`), and the
growth in the last step: 2 is linear, 4 quadratic.
"""

from __future__ import annotations

import time

import click

from benchmarks.scaling_families import FAMILIES, Family
from modelcc.driver import compile_model
from modelcc.ir.errors import ModelError
from modelcc.options import Options

PARTS = (0.25, 0.5, 1.0)


def seconds(family: Family, nodes: int) -> float:
    """CPU seconds for compiling the model of `nodes` nodes in this process."""
    model = family(nodes)
    start = time.process_time()
    compile_model(model, Options(threads=1))
    return time.process_time() - start


@click.command()
@click.argument("names", nargs=-1)
@click.option("--share", default=1.0, show_default=True, help="Part of the greatest numbers.")
def main(names: tuple[str, ...], share: float) -> None:
    """Print the table for the families NAMES, or for all."""
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]}: there are {', '.join(FAMILIES)}")
    click.echo("| family | nodes | s at a quarter | s at a half | s | growth |")
    click.echo("|---|---|---|---|---|---|")
    for name in names or FAMILIES:
        family, greatest = FAMILIES[name]
        nodes = int(greatest * share)
        try:
            found = [seconds(family, max(1, int(nodes * part))) for part in PARTS]
        except (ModelError, RecursionError) as error:
            click.echo(f"| {name} | {nodes} | {type(error).__name__}: {error} | | | |")
            continue
        cells = " | ".join(f"{value:.2f}" for value in found)
        click.echo(f"| {name} | {nodes} | {cells} | {found[-1] / found[-2]:.1f} |")


if __name__ == "__main__":
    main()
