"""Corrupted ``.mcc`` files, each in a resource-limited process: rejected, or correct.

python -m fuzz.artifacts -n 2000
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import click
import numpy as np

import modelcc
from fuzz.artifact_mutations import damaged
from fuzz.attempt import Limits, Outcome, last_lines, limited
from fuzz.campaign import Tried
from fuzz.corpus import suite_models
from fuzz.report import groups, line, summary
from modelcc.artifact.file import read_artifact
from modelcc.ir.types import Array
from modelcc.runtime.errors import LoadError
from modelcc.runtime.opening import session_of

LARGEST = 1 << 20
"""Maximum artifact size in bytes: random positions in larger ones rarely hit new code."""


@dataclass(frozen=True)
class Compiled:
    """A compiled model as a file, inputs for it, and its results."""

    data: bytes
    feeds: dict[str, Array]
    results: dict[str, Array]


def compiled(models: Sequence[bytes], folder: Path) -> Iterator[Compiled]:
    """Those of ``models`` that compile, with random inputs."""
    for model in models:
        try:
            net = modelcc.compile(model, threads=1, cache=None)
            feeds = net.random_inputs()
            results = net.run(feeds)
        except (modelcc.ModelError, modelcc.InputError, RuntimeError):
            continue
        net.save(folder / "model.mcc")
        data = (folder / "model.mcc").read_bytes()
        if len(data) <= LARGEST:
            yield Compiled(data, feeds, results)


def mutant(models: Sequence[Compiled], seed: int, number: int) -> tuple[int, str, bytes]:
    """The index of a model, its mutation, and the resulting file."""
    random = Random(f"{seed}:{number}")
    position = random.randrange(len(models))
    return position, *damaged(models[position].data, random)


def try_mutant(models: Sequence[Compiled], seed: int, number: int, path: Path) -> Tried:
    """Writes a mutant to ``path`` and tests it."""
    position, changes, data = mutant(models, seed, number)
    path.write_bytes(data)
    limits = Limits(seconds=20, memory=1 << 30)
    return Tried(number, position, changes, tried(models[position], path, limits))


def tried(model: Compiled, path: Path, limits: Limits) -> Outcome:
    """``refused``, ``ran`` (the result is correct), ``imported`` (a manifest with other contents,
    which is as trusted as code, was read and linked), or a finding."""

    def trial() -> Outcome:
        stage = "read"
        try:
            artifact = read_artifact(path)
            stage = "load"
            session = session_of(artifact, 1)
            if artifact.manifest != read_manifest(model):
                return Outcome("imported", stage)
            stage = "run"
            results = session.run(model.feeds)
        except (modelcc.ArtifactError, LoadError) as error:
            return Outcome("refused", stage, str(error)[:500], str(path) in str(error))
        except BaseException as error:
            return Outcome("fault", stage, last_lines(error))
        same = all(np.array_equal(results[n], r, equal_nan=r.dtype.kind == "f")
                   for n, r in model.results.items())  # fmt: skip
        return Outcome("ran" if same else "wrong", stage, path.name)

    return limited(trial, limits)


def read_manifest(model: Compiled) -> object:
    """The manifest of the unmodified artifact."""
    with tempfile.NamedTemporaryFile(suffix=".mcc") as file:
        file.write(model.data)
        file.flush()
        return read_artifact(file.name).manifest


@click.command()
@click.option("-n", "--count", default=2000, show_default=True, help="Mutants to try.")
@click.option("--first", default=0, help="Number of the first one.")
@click.option("--seed", default=0, show_default=True)
@click.option("--models", default=24, show_default=True, help="Models of the suite to compile.")
def main(count: int, first: int, seed: int, models: int) -> None:
    """Mutate compiled models; exit code 1 if something is found."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = [*compiled(suite_models(models)[:models], folder)]
        found: list[Tried] = []
        for number in range(first, first + count):
            found.append(try_mutant(corpus, seed, number, folder / "mutant.mcc"))
            if found[-1].outcome.is_finding:
                click.echo(line(found[-1]))
    click.echo("\n".join([summary(found), *groups(found)]))
    sys.exit(1 if any(each.outcome.is_finding for each in found) else 0)


if __name__ == "__main__":
    main()
