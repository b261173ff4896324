"""Many mutants, each reproducible from the campaign's seed and its number."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random

from fuzz.attempt import OUTSIDE, Limits, Outcome, attempt
from fuzz.corruption import corrupted
from fuzz.mutations import mutated


@dataclass(frozen=True)
class Campaign:
    """Models to mutate and how: ``bytes_share`` of mutants are corrupted files, the others
    structurally mutated, and ``run_share`` of them are compiled and run, the others only
    imported."""

    models: Sequence[bytes]
    seed: int = 0
    bytes_share: float = 0.3
    run_share: float = 0.3
    seconds: int = 60
    memory: int = 3 << 30


@dataclass(frozen=True)
class Tried:
    """A mutant by its number, its model and mutation, and its outcome."""

    number: int
    model: int
    changes: str
    outcome: Outcome


def mutant(campaign: Campaign, number: int) -> tuple[int, str, bytes]:
    """The index of a model, its mutation, and the resulting file."""
    random = Random(f"{campaign.seed}:{number}")
    position = random.randrange(len(campaign.models))
    data = campaign.models[position]
    damage = corrupted if random.random() < campaign.bytes_share else mutated
    return position, *damage(data, random)


def try_mutant(campaign: Campaign, number: int, folder: Path) -> Tried:
    """Writes a mutant into ``folder`` and tests it."""
    position, changes, data = mutant(campaign, number)
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (folder / OUTSIDE).write_bytes(bytes(4096))
    link = model / "link"
    if not link.is_symlink():
        link.symlink_to(folder / OUTSIDE)
    path = model / "model.onnx"
    path.write_bytes(data)
    runs = Random(f"{campaign.seed}:{number}:run").random() < campaign.run_share
    limits = Limits(campaign.seconds, campaign.memory, runs)
    return Tried(number, position, changes, attempt(path, limits))


def tried(campaign: Campaign, numbers: range, jobs: int = 1) -> Iterator[Tried]:
    """Outcomes of mutants ``numbers``, as they arrive, from ``jobs`` processes.

    RuntimeError if one of these ends early, which is a defect of the fuzzer.
    """
    context = get_context("fork")  # the models are inherited, not sent
    open_pipes: list[Connection] = []
    for start in range(jobs):
        read, write = context.Pipe(duplex=False)
        context.Process(target=_work, args=(campaign, numbers[start::jobs], write)).start()
        write.close()
        open_pipes.append(read)
    count = 0
    while open_pipes:
        for pipe in wait(open_pipes):
            assert isinstance(pipe, Connection)
            try:
                found: Tried = pipe.recv()
            except EOFError:
                open_pipes.remove(pipe)
                continue
            count += 1
            yield found
    if count < len(numbers):
        raise RuntimeError(f"{len(numbers) - count} mutants were not tried: a worker has ended")


def _work(campaign: Campaign, numbers: range, pipe: Connection) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            pipe.send(try_mutant(campaign, number, Path(folder)))
