"""PyTorch, for models of the zoo: the module is rebuilt from its recipe and seed."""

from __future__ import annotations

from pathlib import Path

import torch

from benchmarks.peers import Arrays, Run
from benchmarks.zoo.build import build
from benchmarks.zoo.catalogue import variant


def load(path: Path, threads: int) -> Run:
    """Eager mode; KeyError for models that are not in the zoo."""
    return _load(path, threads, compiled=False)


def load_compiled(path: Path, threads: int) -> Run:
    """torch.compile with its default backend; compiles in the first call."""
    return _load(path, threads, compiled=True)


def _load(path: Path, threads: int, compiled: bool) -> Run:
    torch.set_num_threads(threads)
    model, _ = variant(path.stem)
    eager = build(model)
    module = torch.compile(eager) if compiled else eager

    def run(feeds: Arrays) -> Arrays:
        with torch.inference_mode():
            result = module(*(torch.from_numpy(feeds[item.name]) for item in model.inputs))
        outputs = result if isinstance(result, tuple) else (result,)
        return {name: out.numpy() for name, out in zip(model.outputs, outputs, strict=True)}

    return run
