"""``python -m conformance.ethos_u``: is our verdict of each operator Vela's?

Models of a folder and generated ones with odd parameters, each compiled by Vela.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from conformance.ethos_u_models import generated
from conformance.vela import VelaVerdict, named_apart, run_vela
from modelcc.frontends.tflite.reading import read_model
from modelcc.subsets.table import SUBSETS
from modelcc.subsets.verdict import NodeVerdict, check_model


@dataclass(frozen=True)
class Difference:
    """An operator on which Vela's verdict differs."""

    model: str
    node: NodeVerdict
    vela: str

    def __str__(self) -> str:
        node = self.node
        ours = "taken" if node.taken else f"left: {'; '.join(node.reasons)}"
        return f"{self.model}: {node.index} {node.operator}: Vela {self.vela}, we say {ours}"


def compared(
    data: bytes, name: str, target: str, folder: Path
) -> tuple[int, tuple[Difference, ...]]:
    """The number of operators, and those on which Vela's verdict differs."""
    written, _ = named_apart(data)
    nodes = check_model(read_model(written, name), SUBSETS[target]).nodes
    verdict = run_vela(written, target, folder)
    found = ((node, _of_vela(node, verdict)) for node in nodes)
    differing = (Difference(name, n, vela) for n, vela in found if n.taken != (vela == "takes it"))
    return len(nodes), tuple(differing)


def _of_vela(node: NodeVerdict, verdict: VelaVerdict) -> str:
    if verdict.refused:
        return f"refuses the model ({verdict.refused})"
    kinds = {node.operator, "None"}  # Vela's name of unknown operators
    left = node.result in verdict.results if node.result else bool(kinds & verdict.kinds)
    return "leaves it" if left else "takes it"


def models(folder: Path | None) -> Iterator[tuple[str, bytes]]:
    """Names and bytes: of a folder's files, or generated models."""
    if folder is None:
        yield from generated()
        return
    for path in sorted(folder.glob("*.tflite")):
        yield path.stem, path.read_bytes()


@click.command()
@click.option("--models", "folder", type=click.Path(exists=True, path_type=Path))
@click.option("--target", type=click.Choice(["ethos-u55", "ethos-u65"]), default="ethos-u55")
@click.option("--only", default="", help="Regular expression that names must contain.")
@click.option("--least", default=98.0, show_default=True, help="Percent that must agree.")
def main(folder: Path | None, target: str, only: str, least: float) -> None:
    """Compare verdicts on the models of a folder, or on generated ones."""
    total, differing = 0, 0
    with tempfile.TemporaryDirectory() as place:
        for name, data in models(folder):
            if not re.search(only, name):
                continue
            count, found = compared(data, name, target, Path(place))
            total, differing = total + count, differing + len(found)
            for difference in found:
                click.echo(difference)
    share = 100 * (total - differing) / max(1, total)
    click.echo(f"{target}: {total - differing} of {total} operators agree ({share:.2f} %)")
    sys.exit(0 if share >= least else 1)


if __name__ == "__main__":
    main()
