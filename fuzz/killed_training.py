"""A training run that is killed at random moments, again and again, and goes on each time.

    python -m fuzz.killed_training -n 50

trains a model in a process of its own, kills that with SIGKILL, and starts it again; a run that
comes to its end must have the weights and the log of one that was never killed, bit by bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from modelcc import Tensor, optim, training

SAMPLES, FEATURES, HIDDEN = 640, 12, 24
OUTCOME = "outcome.txt"
LOG = "log.jsonl"
LONGEST = 600.0
"""Time limit of a run in seconds."""


def model(seed: int = 0) -> dict[str, Tensor]:
    """A small network; ``mean`` is a statistic and ``key`` a random key, both buffers."""
    rng = np.random.default_rng(seed)
    shapes = {"w1": (FEATURES, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, 1)}
    weights = {n: Tensor(rng.normal(size=s).astype(np.float32) * 0.3) for n, s in shapes.items()}
    return {**weights, "key": Tensor(1), "seen": Tensor(0)}


def loss(params: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """A regression loss, with noise that depends on a key."""
    params["key"] = (params["key"] * 1103515245 + 12345) % 2147483648
    params["seen"] = params["seen"] + 1
    noise = params["key"].astype("f32") * (0.01 / 2147483648)
    error = (x @ params["w1"] + params["b1"]).tanh() @ params["w2"] - y + noise
    return error.square().mean(), {"worst": error.abs().max()}


def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Samples and their targets."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(SAMPLES, FEATURES)).astype(np.float32)
    return x, np.sin(x[:, :1]) * x[:, 1:2]


def train(folder: Path) -> None:
    """Trains in ``folder``, resuming from the previous process; its outcome is a file there."""
    optimizer = optim.AdamW(optim.Warmup(optim.Cosine(1e-2, 400), 20), amsgrad=True)
    step = training.TrainStep(model(), loss, optimizer, clip=optim.ClipGlobalNorm(1.0), threads=1)
    trainer = training.Trainer(
        step,
        training.Batches(data(0), 48, seed=3),
        validation=training.Batches(data(1), 320, shuffle=False),
        epochs=30,
        folder=folder / "checkpoints",
        checkpoint_every=9,
        validate_every=50,
        log_every=10,
        stopping=training.EarlyStopping(patience=6),
        logs=(training.JsonLines(folder / LOG),),
    )
    trainer.fit()
    (folder / OUTCOME).write_text(outcome(folder, step.values))


def outcome(folder: Path, values: dict[str, np.ndarray]) -> str:
    """Digests of all values and of the log without its times."""
    digest = hashlib.sha256()
    for name, array in sorted(values.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    lines = [json.loads(line) for line in (folder / LOG).read_text().splitlines()]
    known: list[Any] = [{n: v for n, v in line.items() if n != "time"} for line in lines]
    return f"{digest.hexdigest()} {len(lines)} {hashlib.sha256(str(known).encode()).hexdigest()}"


@dataclass(frozen=True)
class Tally:
    """How often a process was killed, and how many runs completed nevertheless."""

    kills: int
    runs: int


def killed(kills: int, seed: int, folder: Path) -> Tally:
    """Kills ``kills`` times; ``AssertionError`` if a run ends otherwise than an uninterrupted
    one."""
    rng = random.Random(seed)
    wanted, longest = _whole_run(folder / "undisturbed")
    again, found_in_cache = _whole_run(folder / "again")
    assert again == wanted, f"two runs that nobody killed ended otherwise: {again}, {wanted}"
    longest = min(longest, found_in_cache)
    done = runs = 0
    while done < kills:
        place = folder / f"run{runs}"
        while not (place / OUTCOME).exists():
            last = done == kills
            done += _started(place, None if last else rng.uniform(0.0, longest))
        found = (place / OUTCOME).read_text()
        assert found == wanted, f"run {runs} of seed {seed} ended otherwise: {found} for {wanted}"
        runs += 1
    return Tally(done, runs)


def _whole_run(place: Path) -> tuple[str, float]:
    """The outcome of an uninterrupted run, and its seconds."""
    start = time.perf_counter()
    assert not _started(place, None)
    return (place / OUTCOME).read_text(), time.perf_counter() - start


def _started(place: Path, seconds: float | None) -> bool:
    """Runs a training process; returns whether it had to be killed after ``seconds``."""
    place.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "fuzz.killed_training", "--train", str(place)]
    child = subprocess.Popen(command)
    try:
        code = child.wait(LONGEST if seconds is None else seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        return True
    assert code == 0, f"training failed with code {code}"
    return False


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m fuzz.killed_training")
    parser.add_argument("-n", type=int, default=50, help="how often to kill")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--train", type=Path, help="train in this folder")
    options = parser.parse_args(arguments)
    if options.train is not None:
        train(options.train)
        return
    with tempfile.TemporaryDirectory() as folder:
        tally = killed(options.n, options.seed, Path(folder))
    print(f"killed {tally.kills} times in {tally.runs} runs; each ended as if it had not been")


if __name__ == "__main__":
    main()
