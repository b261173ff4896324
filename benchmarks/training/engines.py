"""One engine on one model, in a separate process: it trains one step per request.

A step is forward, cross-entropy of ten classes, backward, and SGD with momentum, of the same batch.
An engine imports only its own framework, so that the process's memory is its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.busy_time import peak_bytes, reset_peak, seconds_of, seconds_with_helpers
from benchmarks.engine_worker import Refused

RATE, MOMENTUM = 0.01, 0.9
CHECKED_STEPS = 5
"""Steps whose losses are compared between engines."""

Step = Callable[[], float]
"""A synchronous training step; returns its loss."""


@dataclass(frozen=True)
class Task:
    """A model by name, its initial parameters and a batch created by PyTorch (a file), and the
    number of threads."""

    model: str
    file: Path
    threads: int
    cache: Path

    def arrays(self) -> dict[str, Any]:
        """Parameters and buffers by PyTorch's names, without the batch."""
        with np.load(self.file) as stored:
            return {n: stored[n] for n in stored.files if n not in ("batch", "labels")}

    def batch(self) -> tuple[Any, Any]:
        """Images or sequences, and their classes."""
        with np.load(self.file) as stored:
            return stored["batch"], stored["labels"]


@dataclass(frozen=True)
class Trained:
    """An engine after its first steps: seconds of the first, which compiles, and first losses."""

    cold_seconds: float
    losses: tuple[float, ...]


def _torch_step(task: Task, compiled: bool, whole: bool) -> Step:
    torch: Any = import_module("torch")
    models: Any = import_module("benchmarks.training.torch_models")
    torch.set_num_threads(task.threads)
    made = models.MODELS[task.model]().train()
    made.load_state_dict({n: torch.from_numpy(a) for n, a in task.arrays().items()})
    model = torch.compile(made) if compiled else made
    optimizer = torch.optim.SGD(made.parameters(), RATE, MOMENTUM)
    update = torch.compile(optimizer.step) if whole else optimizer.step
    x, labels = map(torch.from_numpy, task.batch())

    def step() -> float:
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        update()
        return loss.item()

    return step


def _jax_step(task: Task) -> Step:
    jax: Any = import_module("jax")
    models: Any = import_module("benchmarks.training.jax_models")
    forward, tree = models.MODELS[task.model], jax.tree
    arrays = {n: jax.numpy.asarray(a) for n, a in task.arrays().items()}
    stats = {n: a for n, a in arrays.items() if "running" in n}
    params = {n: a for n, a in arrays.items() if "running" not in n and "num_batches" not in n}
    x, labels = map(jax.numpy.asarray, task.batch())

    def loss_of(params: Any, stats: Any) -> tuple[Any, Any]:
        logits, made = forward(params, stats, x)
        chosen = jax.numpy.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)
        return -chosen.mean(), made

    def update(params: Any, stats: Any, moments: Any) -> Any:
        (loss, made), grads = jax.value_and_grad(loss_of, has_aux=True)(params, stats)
        moments = tree.map(lambda m, g: MOMENTUM * m + g, moments, grads)
        return loss, tree.map(lambda p, m: p - RATE * m, params, moments), made, moments

    run = jax.jit(update, donate_argnums=(0, 1, 2))
    state = [params, stats, tree.map(jax.numpy.zeros_like, params)]

    def step() -> float:
        loss, *state[:] = run(*state)
        return float(loss)

    return step


def _modelcc_step(task: Task) -> Step:
    models: Any = import_module("benchmarks.training.modelcc_models")
    return models.step(task.model, task.arrays(), *task.batch(), RATE, MOMENTUM, task.threads)


ENGINES: Mapping[str, Callable[[Task], Step]] = {
    "eager": lambda task: _torch_step(task, False, False),
    "inductor": lambda task: _torch_step(task, True, False),
    "inductor-optimizer": lambda task: _torch_step(task, True, True),
    "jax": _jax_step,
    "modelcc": _modelcc_step,
}
"""``inductor`` is ``torch.compile`` of the model, ``inductor-optimizer`` of SGD's step as well."""


def serve(connection: Connection, engine: str, task: Task) -> None:
    """Sends :class:`Trained` or :class:`Refused`, then a round's seconds of a step whenever asked;
    told to end, the most memory of the process since it was ready, and in all, in bytes."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(task.cache)
    os.environ["MODELCC_CACHE_DIR"] = str(task.cache)
    try:
        step = ENGINES[engine](task)
        begun = seconds_with_helpers(task.threads)
        losses = [step()]
        cold = seconds_with_helpers(task.threads) - begun
        losses += [step() for _ in range(CHECKED_STEPS - 1)]
    except Exception as error:  # any engine may raise anything: it is reported, not handled
        connection.send(Refused(f"{type(error).__name__}: {error}".splitlines()[0]))
        return
    connection.send(Trained(cold, tuple(losses)))
    whole = peak_bytes()
    reset_peak()
    while (seconds := connection.recv()) > 0:
        connection.send(_mean(step, seconds, task.threads))
    connection.send((peak_bytes(), whole))


def _mean(step: Step, seconds: float, threads: int) -> float:
    """Seconds of a step, the mean over a round, after a warm-up step."""
    step()
    count, start = 0, seconds_of(threads)
    while (elapsed := seconds_of(threads) - start) < seconds or not count:
        step()
        count += 1
    return elapsed / count
