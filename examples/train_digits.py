"""A small convolutional network that learns handwritten digits, in a few seconds.

It is written, trained and checked here; the digits come with scikit-learn.  Started again with the
same folder, it goes on from its last checkpoint; the best weights become a model for inference.

    python examples/train_digits.py [--folder build/digits] [--epochs 12] [--seed 0]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import modelcc
from modelcc import Input, Tensor, nn, optim, training

Array = np.ndarray
BATCH = 64
GOOD = 0.985
"""The share of digits it has not seen that it should recognise."""


def main() -> int:
    """0 if it has learned well, else 1."""
    parser = argparse.ArgumentParser(description="Learn handwritten digits.")
    parser.add_argument("--folder", type=Path, default=None, help="for checkpoints and the log")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="of weights and of the data's order")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    start = perf_counter()
    model = network(asked.seed)
    trainer = trainer_of(model, asked.folder, asked.epochs, asked.seed, asked.threads)
    end = trainer.fit()
    found = trainer.evaluate(trainer.validation)
    seconds = perf_counter() - start
    print(f"{end.step} steps in {seconds:.1f} s; {found['accuracy']:.1%} of new digits recognised")
    agreement = deployed(trainer.step.module, trainer.validation, asked.threads)
    print(f"the compiled network recognises {agreement:.1%}")
    return 0 if min(found["accuracy"], agreement) >= GOOD else 1


def network(seed: int) -> nn.Module:
    """Images [n, 8, 8] to scores [n, 10]."""
    rng = np.random.default_rng(seed)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8)),
        nn.Conv2d(1, 16, 3, padding=1, bias=False, rng=rng),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False, rng=rng),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3, rng=rng),
        nn.Linear(32 * 4 * 4, 10, rng=rng),
    )


def loss(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy, and the share of digits that are recognised."""
    scores = model(x)
    right = (scores.argmax(1) == y).astype("f32")
    return nn.functional.cross_entropy(scores, y), {"accuracy": right.mean()}


def data() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Four fifths of the digits to learn from, and the rest."""
    digits: Any = load_digits()
    images, classes = (digits.images / 16).astype(np.float32), digits.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(classes))
    learned, held_out = np.split(order, [len(order) * 4 // 5])
    return (images[learned], classes[learned]), (images[held_out], classes[held_out])


def trainer_of(
    model: nn.Module, folder: Path | None, epochs: int, seed: int, threads: int
) -> training.Trainer:
    """What trains ``model``."""
    learned, held_out = data()
    batches = training.Batches(learned, BATCH, seed=seed, drop_last=True)
    optimizer = optim.AdamW(optim.OneCycle(3e-3, steps=epochs * len(batches)))
    step = training.TrainStep(model, loss, optimizer, threads=threads)
    return training.Trainer(
        step,
        batches,
        validation=training.Batches(held_out, len(held_out[0]), shuffle=False),
        epochs=epochs,
        folder=folder,
        stopping=training.EarlyStopping("accuracy", mode="max", patience=epochs),
        logs=() if folder is None else (training.JsonLines(folder / "log.jsonl"),),
    )


def deployed(model: nn.Module, held_out: training.Batches, threads: int) -> float:
    """The share that the network recognises when it is compiled for inference, at any batch."""
    scores = modelcc.trace(model.eval(), Input(("batch", 8, 8)))
    net = scores.compile(threads=threads)
    (batch,) = held_out
    return float(np.mean(np.argmax(net(batch[0]), 1) == batch[1]))


if __name__ == "__main__":
    sys.exit(main())
