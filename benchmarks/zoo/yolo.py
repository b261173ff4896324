"""A detector of the shape of YOLOv8-nano: CSP backbone, two-way pyramid, decoupled heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn

BINS = 16
"""Buckets of the distribution over each box side (Li et al. 2020, arXiv:2006.04388)."""


def _conv(entering: int, leaving: int, kernel: int = 1, stride: int = 1) -> nn.Module:
    convolution = nn.Conv2d(entering, leaving, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(leaving), nn.SiLU())


class Bottleneck(nn.Module):
    """Two 3x3 convolutions, optionally around a residual connection."""

    def __init__(self, channels: int, residual: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels, 3), _conv(channels, channels, 3))
        self.residual = residual

    def forward(self, value: Tensor) -> Tensor:
        """Keeps the shape."""
        return value + self.body(value) if self.residual else self.body(value)


class Split(nn.Module):
    """Cross-stage block: half the channels pass a chain whose every state is kept."""

    def __init__(self, entering: int, leaving: int, depth: int, residual: bool = False) -> None:
        super().__init__()
        half = leaving // 2
        self.enter = _conv(entering, leaving)
        self.chain = nn.ModuleList(Bottleneck(half, residual) for _ in range(depth))
        self.leave = _conv((2 + depth) * half, leaving)

    def forward(self, value: Tensor) -> Tensor:
        """(batch, entering, h, w) to (batch, leaving, h, w)."""
        states = list(self.enter(value).chunk(2, dim=1))
        for block in self.chain:
            states.append(block(states[-1]))
        return self.leave(torch.cat(states, dim=1))


class Pyramid(nn.Module):
    """Spatial pyramid pooling with three chained 5x5 max pools."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = _conv(channels, channels // 2)
        self.pool = nn.MaxPool2d(5, stride=1, padding=2)
        self.leave = _conv(channels * 2, channels)

    def forward(self, value: Tensor) -> Tensor:
        """Keeps the shape."""
        states = [self.enter(value)]
        for _ in range(3):
            states.append(self.pool(states[-1]))
        return self.leave(torch.cat(states, dim=1))


class Head(nn.Module):
    """Boxes and class scores of three scales, decoded to (batch, 4 + classes, anchors)."""

    def __init__(self, widths: tuple[int, ...], classes: int, size: int) -> None:
        super().__init__()
        self.boxes = nn.ModuleList(self._branch(width, 64, 4 * BINS) for width in widths)
        self.scores = nn.ModuleList(self._branch(width, classes, classes) for width in widths)
        self.expectation = nn.Conv2d(BINS, 1, 1, bias=False)
        self.expectation.weight.data = torch.arange(BINS).float().view(1, BINS, 1, 1)
        centres, strides = self._anchors(size)
        self.register_buffer("centres", centres)
        self.register_buffer("strides", strides)

    @staticmethod
    def _branch(entering: int, inner: int, leaving: int) -> nn.Module:
        last = nn.Conv2d(inner, leaving, 1)
        return nn.Sequential(_conv(entering, inner, 3), _conv(inner, inner, 3), last)

    @staticmethod
    def _anchors(size: int) -> tuple[Tensor, Tensor]:
        centres: list[Tensor] = []
        strides: list[Tensor] = []
        for stride in (8, 16, 32):
            axis = torch.arange(size // stride) + 0.5
            rows, columns = torch.meshgrid(axis, axis, indexing="ij")
            centres.append(torch.stack([columns.flatten(), rows.flatten()]))
            strides.append(torch.full((1, axis.numel() ** 2), float(stride)))
        return torch.cat(centres, dim=1), torch.cat(strides, dim=1)

    def forward(self, features: list[Tensor]) -> Tensor:
        """Feature maps of stride 8, 16 and 32 to centre-size boxes in pixels, and scores."""
        sides = torch.cat([b(f).flatten(2) for b, f in zip(self.boxes, features, strict=True)], 2)
        scores = torch.cat([s(f).flatten(2) for s, f in zip(self.scores, features, strict=True)], 2)
        bins = sides.unflatten(1, (4, BINS)).transpose(1, 2).softmax(dim=1)
        near, far = self.expectation(bins).squeeze(1).chunk(2, dim=1)
        low, high = self.centres - near, self.centres + far
        boxes = torch.cat([(low + high) / 2, high - low], dim=1) * self.strides
        return torch.cat([boxes, scores.sigmoid()], dim=1)


class Detector(nn.Module):
    """Backbone, top-down and bottom-up pyramid, head."""

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        self.stride8 = nn.Sequential(
            _conv(3, 16, 3, 2),
            _conv(16, 32, 3, 2),
            Split(32, 32, 1, residual=True),
            _conv(32, 64, 3, 2),
            Split(64, 64, 2, residual=True),
        )
        self.stride16 = nn.Sequential(_conv(64, 128, 3, 2), Split(128, 128, 2, residual=True))
        self.stride32 = nn.Sequential(
            _conv(128, 256, 3, 2), Split(256, 256, 1, residual=True), Pyramid(256)
        )
        self.enlarge = nn.Upsample(scale_factor=2)
        self.down16, self.down8 = Split(384, 128, 1), Split(192, 64, 1)
        self.halve8, self.halve16 = _conv(64, 64, 3, 2), _conv(128, 128, 3, 2)
        self.up16, self.up32 = Split(192, 128, 1), Split(384, 256, 1)
        self.head = Head((64, 128, 256), classes, size)

    def forward(self, image: Tensor) -> Tensor:
        """(batch, 3, size, size) to (batch, 4 + classes, anchors)."""
        fine = self.stride8(image)
        middle = self.stride16(fine)
        coarse = self.stride32(middle)
        middle = self.down16(torch.cat([self.enlarge(coarse), middle], dim=1))
        fine = self.down8(torch.cat([self.enlarge(middle), fine], dim=1))
        middle = self.up16(torch.cat([self.halve8(fine), middle], dim=1))
        coarse = self.up32(torch.cat([self.halve16(middle), coarse], dim=1))
        return self.head([fine, middle, coarse])


def yolov8n(size: int) -> nn.Module:
    """80 classes: 3.2 M parameters, and 4.4 GMAC at a size of 640x640."""
    return Detector(classes=80, size=size)
