"""Mutants of models, each in a resource-limited process: none may crash, hang or read other
files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fuzz.campaign import Campaign, mutant, tried
from fuzz.corpus import real_models, suite_models
from fuzz.report import groups, line, summary


@click.command()
@click.option("-n", "--count", default=1000, show_default=True, help="Mutants to try.")
@click.option("--first", default=0, help="Number of the first one.")
@click.option("--seed", default=0, show_default=True)
@click.option("--jobs", default=2, show_default=True, help="Processes.")
@click.option("--real", type=click.Path(path_type=Path), help="Folder of trained models, too.")
@click.option("--run-share", default=0.3, show_default=True, help="Share compiled and run.")
@click.option("--seconds", default=60, show_default=True, help="Processor time of a mutant.")
@click.option("--memory", default=3072, show_default=True, help="MiB of a mutant.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder for the mutants found.")
@click.option("--verbose", is_flag=True, help="A line for each mutant.")
def main(
    count: int,
    first: int,
    seed: int,
    jobs: int,
    real: Path | None,
    run_share: float,
    seconds: int,
    memory: int,
    keep: Path | None,
    verbose: bool,
) -> None:
    """Mutate the standard's suite and trained models; exit code 1 if something is found."""
    models = suite_models()
    if real is not None:
        trained = real_models(real)
        models += trained * max(1, len(models) // (3 * max(1, len(trained))))
    campaign = Campaign(models, seed, run_share=run_share, seconds=seconds, memory=memory << 20)
    found = []
    for each in tried(campaign, range(first, first + count), jobs):
        found.append(each)
        if verbose or each.outcome.is_finding:
            click.echo(line(each))
        if keep is not None and each.outcome.is_finding:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{seed}-{each.number}.onnx").write_bytes(mutant(campaign, each.number)[2])
    click.echo("\n".join([summary(found), *groups(found)]))
    sys.exit(1 if any(each.outcome.is_finding for each in found) else 0)


if __name__ == "__main__":
    main()
