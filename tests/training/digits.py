"""Handwritten digits of scikit-learn, and models that learn them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from modelcc import Tensor, nn, optim, training

Array = np.ndarray


def digits(seed: int = 0) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Images [n, 8, 8] in 0..1 and their classes: four fifths to learn from, one held out."""
    datasets: Any = import_module("sklearn.datasets")
    found = datasets.load_digits()
    order = np.random.default_rng(seed).permutation(len(found.target))
    images = (found.images / 16).astype(np.float32)[order]
    classes = found.target.astype(np.int64)[order]
    cut = len(order) * 4 // 5
    return (images[:cut], classes[:cut]), (images[cut:], classes[cut:])


def mlp(seed: int) -> nn.Module:
    """One hidden layer of 128."""
    rng = np.random.default_rng(seed)
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128, rng=rng),
        nn.ReLU(),
        nn.Dropout(0.2, rng=rng),
        nn.Linear(128, 10, rng=rng),
    )


def cnn(seed: int) -> nn.Module:
    """Two convolutions with batch norms, and a pooling."""
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
        nn.Linear(32 * 16, 10, rng=rng),
    )


def loss(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Cross-entropy, and the share of digits that are recognised."""
    scores = model(x)
    right = (scores.argmax(1) == y).astype("f32")
    return nn.functional.cross_entropy(scores, y), {"accuracy": right.mean()}


def trained(model: nn.Module, rate: float, epochs: int, seed: int = 0) -> training.Trainer:
    """A trainer that has come to its end; ``evaluate(trainer.validation)`` tells how well."""
    learned, held_out = digits()
    batches = training.Batches(learned, 64, seed=seed, drop_last=True)
    schedule = optim.OneCycle(rate, epochs * len(batches))
    step = training.TrainStep(model, loss, optim.AdamW(schedule), threads=1)
    held = training.Batches(held_out, len(held_out[0]), shuffle=False)
    trainer = training.Trainer(step, batches, held, epochs=epochs, validate_every=10**9,
                               show_progress=False)  # fmt: skip
    trainer.fit()
    return trainer
