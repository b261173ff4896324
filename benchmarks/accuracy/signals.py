"""Inputs that resemble training data.

White noise drives trained detectors to outputs near zero, where a relative error says nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Shape = tuple[int, ...]
Fill = Callable[[Shape, np.random.Generator], np.ndarray]

TEXT = b"The quick brown fox jumps over the lazy dog. def main(argv): return len(argv)\n"


def normal(shape: Shape, generator: np.random.Generator) -> np.ndarray:
    """Samples of the normal distribution."""
    return generator.standard_normal(shape)


def tokens(vocabulary: int) -> Fill:
    """Integers below ``vocabulary``."""

    def fill(shape: Shape, generator: np.random.Generator) -> np.ndarray:
        return generator.integers(0, vocabulary, shape)

    return fill


def numbers(*values: float) -> Fill:
    """Constant values, cycled to fill the shape."""

    def fill(shape: Shape, generator: np.random.Generator) -> np.ndarray:
        return np.resize(np.array(values), shape)

    return fill


def detections(shape: Shape, generator: np.random.Generator) -> np.ndarray:
    """``[1, 4 + classes, boxes]``: centres and sizes in pixels, few scores near 1."""
    batch, rows, boxes = shape
    centres = generator.uniform(50, 590, (batch, 2, boxes))
    extents = generator.uniform(20, 120, (batch, 2, boxes))
    scores = generator.uniform(0, 1, (batch, rows - 4, boxes)) ** 8
    return np.concatenate([centres, extents, scores], 1)


def bytes_of_text(shape: Shape, generator: np.random.Generator) -> np.ndarray:
    """Text, repeated, from a random offset, padded with 256 (no byte)."""
    rows, length = shape
    text = np.frombuffer(TEXT, np.uint8).astype(np.int32)
    starts = generator.integers(0, len(text), rows)
    filled = np.stack([np.resize(np.roll(text, -start), length) for start in starts])
    filled[:, length - length // 8 :] = 256
    return filled


def image(shape: Shape, generator: np.random.Generator) -> np.ndarray:
    """NCHW in [-1, 1]: a bright gradient, dark strokes in lines like writing, a little noise."""
    batch, _, height, width = shape
    rows = np.linspace(0, 1, height)[:, None]
    columns = np.linspace(0, 1, width)[None, :]
    picture = np.empty(shape)
    for index in range(batch):
        tilt = generator.uniform(-0.3, 0.3, 2)
        plane = 0.6 + tilt[0] * rows + tilt[1] * columns
        picture[index] = np.where(_strokes(height, width, generator), -0.8, plane)
    return picture + generator.normal(0, 0.01, shape)


def _strokes(height: int, width: int, generator: np.random.Generator) -> np.ndarray:
    """The mask of ink: lines of short bars, two or three pixels thick."""
    ink = np.zeros((height, width), bool)
    tall = max(8, height // 4)
    for top in range(tall // 2, height - tall, 2 * tall):
        for left in range(4, width - 8, tall):
            side = left + int(generator.integers(0, tall // 2))
            ink[top : top + tall, side : side + 3] = True
            bar = top + int(generator.integers(0, tall - 2))
            ink[bar : bar + 2, left : left + tall - 2] = True
    return ink
