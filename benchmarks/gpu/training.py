"""Steps of training by PyTorch on a GPU: eager, inductor and modelcc behind ``torch.compile``.

    python -m benchmarks.gpu.training [--device cuda] [--precision f32 bf16] [MODEL ...]

A step is forward, loss, backward and AdamW, whose step is compiled, too; ``bf16`` is autocast's.
Each engine has a process of its own, of which one at a time is busy.  Prints, for each model and
type, how far gradients are from those of eager execution in f32, in parts of the largest one, how
far the optimizer's first step is from eager execution's by the same gradients, in parts of the
largest change, microseconds of a step, and how many times as fast as the best of the others modelcc
is.  Ends with 1 if gradients of modelcc's are more than ten times as far as eager execution's own,
or its optimizer's step is wrong.  ``--device cpu --target opencl`` rehearses it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

import numpy as np
import torch

from benchmarks.engine_worker import Refused, Worker
from benchmarks.training.shapes import BATCHES
from benchmarks.training.torch_models import MODELS

ENGINES = ("eager", "inductor", "modelcc")
LIMIT = 300.0
"""Time limit in seconds for the first step, which compiles."""

ROUNDS, ROUND_SECONDS = 7, 0.1
FARTHER, ROUNDING = 10.0, 1e-5
"""Tolerated multiple of eager execution's gradient error, and the error considered zero."""

RATE, STEP_ROUNDING = 1e-3, 1e-3
"""The optimizer's learning rate, and the tolerance of its step, as parameters are rounded to
f32."""


@dataclass(frozen=True)
class Training:
    """A model's training steps by one engine: on a PyTorch ``device``, in a ``precision``, and, for
    modelcc, with a ``target`` if that is not the device."""

    engine: str
    model: str
    device: str
    precision: str
    target: str = ""


def serve(connection: Connection, given: Training) -> None:
    """Sends the first step's gradients and how far the optimizer's step is from eager execution's,
    then the seconds of a step whenever asked for them."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch._dynamo.config.allow_rnn = given.engine == "modelcc"
    torch.manual_seed(0)
    model, x = MODELS[given.model]().to(given.device), torch.randn(BATCHES[given.model])
    x, labels = x.to(given.device), (torch.arange(len(x)) % 10).to(given.device)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, RATE)
    run, update = _compiled(given, model), _compiled(given, optimizer.step)
    narrow = given.precision == "bf16"

    def backward() -> None:
        context = torch.autocast(given.device, torch.bfloat16) if narrow else nullcontext()
        with context:
            loss = torch.nn.functional.cross_entropy(run(x), labels)
        loss.backward()

    def step() -> None:
        backward()
        update()
        optimizer.zero_grad()

    backward()
    made = [p.grad.float().cpu().flatten() for p in parameters if p.grad is not None]
    connection.send((torch.cat(made).numpy(), _step_error(parameters, update)))
    optimizer.zero_grad()
    while connection.recv():
        connection.send(_seconds(step, given.device))


def _step_error(parameters: Sequence[Any], update: Callable[[], Any]) -> float:
    """The deviation of ``update``'s parameters from eager execution's, relative to the largest
    change."""
    before, twins = ([p.detach().clone().requires_grad_() for p in parameters] for _ in range(2))
    for twin, p in zip(twins, parameters, strict=True):
        twin.grad = None if p.grad is None else p.grad.clone()
    torch.optim.AdamW(twins, RATE).step()
    update()
    with torch.no_grad():
        off = [(t - p).abs().max().item() for t, p in zip(twins, parameters, strict=True)]
        moved = [(t - b).abs().max().item() for t, b in zip(twins, before, strict=True)]
    return max(off) / max(moved)


def _compiled(given: Training, function: Any) -> Any:
    if given.engine == "eager":
        return function
    if given.engine == "inductor":
        return torch.compile(function)
    options = {"target": given.target} if given.target else {}
    return torch.compile(function, backend="modelcc", options=options)


def _seconds(step: Callable[[], None], device: str) -> float:
    """Seconds of one step, from a synchronised sequence."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    step()
    wait()
    count, start = 0, perf_counter()
    while perf_counter() - start < ROUND_SECONDS or not count:
        step()
        count += 1
    wait()
    return (perf_counter() - start) / count


@dataclass(frozen=True)
class Measured:
    """By engine: gradient and step errors, and microseconds of a step; reasons for missing ones."""

    errors: Mapping[str, float]
    steps: Mapping[str, float]
    times: Mapping[str, float]
    refused: Mapping[str, str]

    @property
    def is_right(self) -> bool:
        """Whether modelcc's gradients and its step are within tolerance."""
        own, step = (e.get("modelcc", np.inf) for e in (self.errors, self.steps))
        bar = FARTHER * max(self.errors.get("eager", 0.0), ROUNDING)
        return own <= bar and step <= STEP_ROUNDING


def measured(name: str, device: str, precision: str, target: str) -> Measured:
    """A model's steps, engines interleaved."""
    with ExitStack() as stack:

        def begun(engine: str, kind: str) -> Worker:
            given = Training(engine, name, device, kind, target)
            worker = Worker(serve, (given,), LIMIT)
            stack.callback(worker.close)
            return worker

        truth = begun("eager", "f32").answer()
        workers = {engine: begun(engine, precision) for engine in ENGINES}
        firsts = {engine: worker.answer() for engine, worker in workers.items()}
        refused = {e: one.reason for e, one in firsts.items() if isinstance(one, Refused)}
        known: Any = {} if isinstance(truth, Refused) else firsts
        right = {engine: known[engine] for engine in known if engine not in refused}
        wanted, _ = truth if not isinstance(truth, Refused) else (np.empty(0), 0.0)
        errors = {
            engine: float(np.abs(made - wanted).max() / np.abs(wanted).max())
            for engine, (made, _) in right.items()
        }
        rounds = [{e: workers[e].ask(True) for e in errors} for _ in range(ROUNDS)]
    found = {e: [r[e] for r in rounds if not isinstance(r[e], Refused)] for e in errors}
    times = {e: statistics.median(seconds) * 1e6 for e, seconds in found.items() if seconds}
    return Measured(errors, {e: step for e, (_, step) in right.items()}, times, refused)


def row(name: str, found: Measured) -> str:
    """A line of the table."""
    errors = [
        f"{off[e]:.1e}" if e in off else "–" for off in (found.errors, found.steps) for e in ENGINES
    ]
    times = [f"{found.times[e]:,.0f}" if e in found.times else "–" for e in ENGINES]
    others = [found.times[e] for e in ENGINES[:-1] if e in found.times]
    known = others and "modelcc" in found.times
    ratio = f"{min(others) / found.times['modelcc']:.2f}" if known else "–"
    return f"| {' | '.join([name, *errors, *times, ratio])} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if gradients are wrong."""
    parser = argparse.ArgumentParser(prog="benchmarks.gpu.training", description=__doc__)
    parser.add_argument("--device", default="cuda", help="of PyTorch's")
    parser.add_argument("--target", default="", help="of modelcc's, if it is not the device")
    parser.add_argument("--precision", nargs="+", default=["f32", "bf16"])
    parser.add_argument("models", nargs="*", default=[*MODELS])
    asked = parser.parse_args(arguments)
    heads = [f"{what} {e}" for what in ("gradients off,", "step off,", "µs,") for e in ENGINES]
    print(f"| step | {' | '.join(heads)} | best other / modelcc |")
    print("|---" * (len(heads) + 2) + "|")
    wrong = 0
    for name in asked.models:
        for precision in asked.precision:
            found = measured(name, asked.device, precision, asked.target)
            print(row(f"{name}, {precision}", found), flush=True)
            for engine, reason in found.refused.items():
                print(f"<!-- {engine}: {reason} -->", flush=True)
            wrong += not found.is_right
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
