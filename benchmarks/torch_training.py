"""Training steps by eager PyTorch, inductor and modelcc, in turns.

    python -m benchmarks.torch_training [--threads N] [--cpu LEVEL] [MODEL ...]

A step is forward, loss, backward and SGD.  Every engine has a process of its own, of which one at a
time is busy, and finds nothing on disk; ``together`` is modelcc that compiles in the same one.
Recurrent networks are traced for modelcc only, since inductor does not run what is traced of them.
Prints Markdown tables of microseconds, of the seconds of the first step, which compiles, and of the
most memory of each process in later steps, in MB.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
from contextlib import ExitStack
from multiprocessing.connection import Connection
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.busy_time import peak_bytes, reset_peak, seconds_of_call, seconds_with_helpers
from benchmarks.engine_worker import Worker
from benchmarks.processor_level import Native, add_level, keep_to
from benchmarks.torch_turns import ROUNDS, Step, table
from benchmarks.training.shapes import BATCHES
from benchmarks.training.torch_models import MODELS

ENGINES = ("eager", "inductor", "modelcc", "together")
LIMIT = 900.0
"""Seconds for a first step."""


def training_step(model: Any, x: Any) -> Step:
    """One step of SGD on fixed labels."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    labels = torch.arange(len(x)) % 10

    def step() -> None:
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def compiled(engine: str, model: Any, native: Native) -> Any:
    """``model`` compiled for ``engine``."""
    if engine in ("eager", "inductor"):
        return model if engine == "eager" else torch.compile(model)
    options = {**native, "cache": None, "separate": engine == "modelcc"}
    return torch.compile(model, backend="modelcc", options=options)


def serve(connection: Connection, engine: str, name: str, native: Native, cache: str) -> None:
    """Sends the seconds of the first step, then those of a step whenever asked for it; told to end,
    the most memory of the process since the first step, in bytes."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    threads = native["threads"]
    torch.set_num_threads(threads)
    torch._dynamo.config.allow_rnn = engine not in ("eager", "inductor")
    model, x = MODELS[name](), torch.randn(BATCHES[name])
    step, start = training_step(compiled(engine, model, native), x), seconds_with_helpers(threads)
    step()
    connection.send(seconds_with_helpers(threads) - start)
    gc.collect()
    reset_peak()
    while connection.recv():
        connection.send(seconds_of_call(step, threads))
    connection.send(peak_bytes())


def measured(name: str, native: Native) -> tuple[dict[str, float], ...]:
    """By engine, median microseconds of a step, seconds of the first one, and megabytes."""
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
        workers = {e: Worker(serve, (e, name, native, folder), LIMIT) for e in ENGINES}
        for worker in workers.values():
            stack.callback(worker.close)
        firsts = {engine: worker.answer() for engine, worker in workers.items()}
        rounds = [{e: w.ask(True) * 1e6 for e, w in workers.items()} for _ in range(ROUNDS)]
        memory = {e: w.ask(False) / 1e6 for e, w in workers.items()}
    return {e: statistics.median(r[e] for r in rounds) for e in ENGINES}, firsts, memory


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("models", nargs="*", default=[*MODELS])
    add_level(parser)
    asked = parser.parse_args()
    keep_to(asked.cpu)
    native = {"threads": asked.threads, "cpu": asked.cpu}
    found: dict[str, tuple[dict[str, float], ...]] = {}
    for name in asked.models:
        found[name] = measured(name, native)
        print(f"<!-- {name}: {found[name]} -->", flush=True)
    titles = (f"µs per step, {asked.threads} threads", "s of the first step", "MB")
    for n, title in enumerate(titles):
        print(table(title, {name: tables[n] for name, tables in found.items()}), end="\n\n")


if __name__ == "__main__":
    main()
