"""U-Net (Ronneberger et al. 2015, arXiv:1505.04597) with padded convolutions and batch norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def _double(entering: int, leaving: int) -> nn.Module:
    layers: list[nn.Module] = []
    for channels in (entering, leaving):
        convolution = nn.Conv2d(channels, leaving, 3, padding=1, bias=False)
        layers += [convolution, nn.BatchNorm2d(leaving), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Contracts by max pooling, expands by transposed convolution, joins by concatenation."""

    def __init__(self, channels: int, classes: int, base: int, depth: int) -> None:
        super().__init__()
        widths = [base << level for level in range(depth + 1)]
        entering = [channels, *widths]
        self.down = nn.ModuleList(map(_double, entering, widths))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(wide, wide // 2, 2, stride=2) for wide in widths[:0:-1]
        )
        self.merge = nn.ModuleList(_double(wide, wide // 2) for wide in widths[:0:-1])
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(base, classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """(batch, channels, h, w) to (batch, classes, h, w); h and w divide by 2**depth."""
        skips: list[Tensor] = []
        value = image
        for level, block in enumerate(self.down):
            value = block(self.pool(value) if level else value)
            skips.append(value)
        for skip, up, merge in zip(skips[-2::-1], self.up, self.merge, strict=True):
            value = merge(torch.cat([skip, up(value)], dim=1))
        return self.head(value)


def unet() -> nn.Module:
    """Two classes from RGB; base width 32, four halvings: 12 GMAC at 256x256."""
    return UNet(channels=3, classes=2, base=32, depth=4)
