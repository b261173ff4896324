"""Training steps by eager PyTorch, inductor and modelcc, in turns.

    python -m benchmarks.torch_training [--threads N] [MODEL ...]

A step is forward, loss, backward and SGD.  Prints a Markdown table of microseconds, and the seconds
of the first step, which compiles.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.torch_turns import Step, engines, first_seconds, in_turns, table


def mlp() -> tuple[Any, Any]:
    """Three layers of 512."""
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), torch.randn(64, 784)


def cnn() -> tuple[Any, Any]:
    """After LeNet."""
    features = [nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]  # fmt: skip
    head = [nn.Linear(800, 120), nn.ReLU(), nn.Linear(120, 10)]
    return nn.Sequential(*features, *head), torch.randn(32, 1, 28, 28)


class Residual(nn.Module):
    """Two convolutions with batch norms, and what goes around them."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(made), nn.BatchNorm2d(made)])
        around = [nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made)]
        self.around = nn.Sequential(*(around if stride > 1 else []))

    def forward(self, x: Any) -> Any:
        """The block's result."""
        y = torch.relu(self.norms[0](self.first(x)))
        return torch.relu(self.norms[1](self.second(y)) + self.around(x))


def resnet18() -> tuple[Any, Any]:
    """For images of 32 x 32."""
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1),
              (256, 512, 2), (512, 512, 1)]  # fmt: skip
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*stem, *(Residual(*w) for w in widths), *head), torch.randn(32, 3, 32, 32)


class Transformer(nn.Module):
    """Four encoder layers, without dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(128, 4, 512, 0.0, "gelu", batch_first=True) for _ in range(4)
        )
        self.head = nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        """Logits of the mean over the sequence."""
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class Recurrent(nn.Module):
    """One LSTM layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        """Logits of the last step."""
        return self.head(self.lstm(x)[0][:, -1])


MODELS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "mlp": mlp,
    "cnn": cnn,
    "resnet18": resnet18,
    "transformer": lambda: (Transformer(), torch.randn(8, 64, 128)),
    "lstm": lambda: (Recurrent(), torch.randn(16, 32, 64)),
}


def training_step(model: Any, x: Any) -> Step:
    """One step of SGD on fixed labels."""
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    labels = torch.arange(len(x)) % 10

    def step() -> None:
        loss = nn.functional.cross_entropy(model(x), labels)
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
        model, x = MODELS[name]()
        steps = {engine: training_step(own, x) for engine, own in engines(model).items()}
        firsts[name] = first_seconds(steps)
        rows[name] = in_turns(steps)
    print(table(f"µs per step, {asked.threads} threads", rows))
    print(table("\ns of the first step", firsts))


if __name__ == "__main__":
    main()
