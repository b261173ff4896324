"""The models of the comparison in modelcc's own layers, with PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.training.shapes import WIDTHS
from modelcc import nn, optim
from modelcc.nn import functional
from modelcc.tensor.tensor import Tensor
from modelcc.training import TrainStep


class Residual(nn.Module):
    """A residual block: two convolutions with batch norms, and the shortcut."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(made)
        self.conv2 = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(made)
        around = [nn.Conv2d(given, made, 1, stride, bias=False), nn.BatchNorm2d(made)]
        self.downsample = nn.Sequential(*(around if stride > 1 else []))

    def forward(self, x: Tensor) -> Tensor:
        """The block's result."""
        y = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Transformer(nn.Module):
    """Four encoder layers without dropout, of width 256."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            [
                nn.TransformerEncoderLayer(256, 4, 1024, 0.0, "gelu", batch_first=True)
                for _ in range(4)
            ]
        )
        self.head = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the mean over the sequence."""
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


class Recurrent(nn.Module):
    """One LSTM layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the last step."""
        return self.head(self.lstm(x)[0][:, -1])


def _mlp() -> nn.Module:
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers)


def _cnn() -> nn.Module:
    features = [nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]  # fmt: skip
    return nn.Sequential(*features, nn.Linear(800, 120), nn.ReLU(), nn.Linear(120, 10))


def _resnet18() -> nn.Module:
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*stem, *(Residual(*w) for w in WIDTHS), *head)


MODELS: Mapping[str, Callable[[], nn.Module]] = {
    "mlp": _mlp,
    "cnn": _cnn,
    "resnet18": _resnet18,
    "transformer": Transformer,
    "lstm": Recurrent,
}


def _loss(model: Any, x: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), labels)


def step(
    name: str,
    arrays: Mapping[str, Any],
    x: Any,
    labels: Any,
    rate: float,
    momentum: float,
    threads: int,
) -> Callable[[], float]:
    """A training step from the parameters ``arrays``, which returns the loss."""
    model = MODELS[name]()
    model.load_state_dict(arrays)
    train = TrainStep(model, _loss, optim.SGD(rate, momentum), threads=threads)
    return lambda: float(train(x, labels)["loss"])
