"""Training steps by eager PyTorch, inductor and modelcc, in turns.

    python -m benchmarks.torch_training [--threads N] [MODEL ...]

A step is forward, loss, backward and SGD.  Prints a Markdown table of microseconds, and the seconds
of the first step, which compiles.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from benchmarks.torch_turns import Step, engines, first_seconds, in_turns, table
from benchmarks.training.shapes import BATCHES
from benchmarks.training.torch_models import MODELS


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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("models", nargs="*", default=[*MODELS])
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    rows: dict[str, dict[str, float]] = {}
    firsts: dict[str, dict[str, float]] = {}
    for name in asked.models:
        torch._dynamo.reset()
        model, x = MODELS[name](), torch.randn(BATCHES[name])
        steps = {engine: training_step(own, x) for engine, own in engines(model).items()}
        firsts[name] = first_seconds(steps)
        rows[name] = in_turns(steps)
    print(table(f"µs per step, {asked.threads} threads", rows))
    print(table("\ns of the first step", firsts))


if __name__ == "__main__":
    main()
