"""``python -m conformance.torch_models``: models of PyTorch's libraries through compiled code.

A model gets random weights and is compiled by ``torch.export`` and :func:`modelcc.compile`, and by
``torch.compile``; what comes out is compared with eager execution.  Each model has a process of its
own, with limits of time and memory.  The page of all outcomes is their record: it is written after
each model, and a run goes on where an earlier one ended.
"""

from __future__ import annotations

import multiprocessing
import re
import resource
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import click
import torch

from conformance.torch_models.attempt import WAYS, outcomes
from conformance.torch_models.decoding import decoding_models
from conformance.torch_models.detection import task_models
from conformance.torch_models.diffusion import diffusers_models
from conformance.torch_models.entries import Entry
from conformance.torch_models.language import transformers_models
from conformance.torch_models.multimodal import multimodal_models
from conformance.torch_models.outcome import PASSED, Outcome, outcomes_in, page_of
from conformance.torch_models.signals import signal_models
from conformance.torch_models.vision import timm_models, torchvision_models

CATALOGUES = (
    *(timm_models, transformers_models, torchvision_models, diffusers_models),
    *(task_models, multimodal_models, signal_models, decoding_models),
)

BUSY = 10
"""Wall time limit of a model relative to its CPU time limit, for loaded machines."""

_CONTEXT = multiprocessing.get_context("fork")


def found(entry: Entry, seconds: float, gigabytes: float) -> list[Outcome]:
    """Outcomes of a model, one per way, from a separate process."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_serve, args=(entry, theirs, seconds, gigabytes), daemon=True)
    process.start()
    theirs.close()
    made: list[Outcome] = []
    try:
        while len(made) < len(WAYS) and ours.poll(seconds * BUSY):
            made.append(ours.recv())
    except EOFError:
        process.join()
    timed_out = process.is_alive() or process.exitcode == -signal.SIGXCPU
    process.kill()
    process.join()
    what = f"more than {seconds:g} s" if timed_out else f"exit code {process.exitcode}"
    rest = list(WAYS)[len(made) :]
    return [*made, *(Outcome(entry.name, entry.kind, way, f"crash: {what}") for way in rest)]


def _serve(entry: Entry, pipe: Connection, seconds: float, gigabytes: float) -> None:
    most = int(gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds * len(WAYS)), resource.RLIM_INFINITY))
    torch.set_num_threads(1)
    outcomes(entry, pipe.send)


def _warm() -> None:
    """Makes PyTorch and modelcc load lazy modules, once for all processes."""
    model = torch.nn.Linear(2, 2)
    outcomes(Entry("warm", "", lambda: (model, {"input": torch.ones(1, 2)})), lambda _: None)


def entries(pattern: str) -> Iterator[Entry]:
    """The models whose names match."""
    names = re.compile(pattern)
    return (e for catalogue in CATALOGUES for e in catalogue() if names.search(e.name))


def recorded(page: Path) -> dict[tuple[str, str], Outcome]:
    """The outcome of each model by each way in a page."""
    text = page.read_text("utf-8") if page.is_file() else ""
    return {(one.model, one.way): one for one in outcomes_in(text)}


def _tried(entry: Entry, known: dict[tuple[str, str], Outcome], again: bool) -> bool:
    own = [known[entry.name, way] for way in WAYS if (entry.name, way) in known]
    failed = again and any(one.reason != PASSED or one.elsewhere for one in own)
    return len(own) == len(WAYS) and not failed


@click.command()
@click.option("-k", "pattern", default="", help="Regular expression that names must contain.")
@click.option("--seconds", default=300.0, show_default=True, help="Processor time of a way.")
@click.option("--gigabytes", default=12.0, show_default=True, help="Memory of a model's process.")
@click.option("--again", is_flag=True, help="Try again what did not pass whole.")
@click.option(
    "--page", type=click.Path(path_type=Path), default=Path("docs/torch-models.md"),
    show_default=True, help="The record: models that are there are not tried.",
)  # fmt: skip
def main(pattern: str, seconds: float, gigabytes: float, again: bool, page: Path) -> None:
    """Compile models of timm, transformers, torchvision and diffusers, and compare."""
    torch.set_num_threads(1)
    _warm()
    known = recorded(page)
    for entry in entries(pattern):
        if _tried(entry, known, again):
            continue
        made = found(entry, seconds, gigabytes)
        every = recorded(page) | {(one.model, one.way): one for one in made}
        page.write_text(page_of(list(every.values())), "utf-8")
        for one in made:
            took = "" if one.seconds is None else f", {one.seconds:.1f} s"
            print(f"{one.model} by {one.way}: {one.reason}, {one.error:.1e}{took}", flush=True)


if __name__ == "__main__":
    main()
