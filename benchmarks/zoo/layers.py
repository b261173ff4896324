"""Small networks written out in torch: MLP, MNIST CNN, LSTM and two of MLPerf Tiny."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn


def mlp() -> nn.Module:
    """Digits from 784 pixels: two hidden layers of 512."""
    return nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )


def mnist_cnn() -> nn.Module:
    """Two 3x3 convolutions, one pool and two dense layers on 28x28 digits."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
        nn.LogSoftmax(dim=1),
    )


def _separable(channels: int) -> list[nn.Module]:
    depthwise = nn.Conv2d(channels, channels, 3, padding=1, groups=channels, bias=False)
    pointwise = nn.Conv2d(channels, channels, 1, bias=False)
    layers: list[nn.Module] = []
    for convolution in (depthwise, pointwise):
        layers += [convolution, nn.BatchNorm2d(channels), nn.ReLU()]
    return layers


def ds_cnn(channels: int = 64, words: int = 12) -> nn.Module:
    """Keyword spotting on 49 frames of 10 MFCCs (Zhang et al. 2017, arXiv:1711.07128)."""
    stem = nn.Conv2d(1, channels, (10, 4), stride=2, padding=(5, 1), bias=False)
    blocks = [layer for _ in range(4) for layer in _separable(channels)]
    return nn.Sequential(
        stem,
        nn.BatchNorm2d(channels),
        nn.ReLU(),
        *blocks,
        nn.AvgPool2d((25, 5)),
        nn.Flatten(),
        nn.Linear(channels, words),
        nn.Softmax(dim=1),
    )


def autoencoder() -> nn.Module:
    """Anomaly detection of MLPerf Tiny: 640, four of 128, 8, four of 128, 640."""
    widths = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128]
    layers: list[nn.Module] = []
    for narrow, wide in pairwise(widths):
        layers += [nn.Linear(narrow, wide), nn.BatchNorm1d(wide), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 640))


class Recurrent(nn.Module):
    """A stacked LSTM over (batch, time, features); returns every step's hidden state."""

    def __init__(self, features: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.cells = nn.LSTM(features, hidden, depth, batch_first=True)

    def forward(self, sequence: Tensor) -> Tensor:
        """(batch, time, features) to (batch, time, hidden)."""
        states, _ = self.cells(sequence)
        return states


def lstm() -> nn.Module:
    """Two layers of 256 units over 128 features."""
    return Recurrent(128, 256, 2)
