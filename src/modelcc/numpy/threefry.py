"""Threefry-2x32: bits from a key and a count (Salmon et al., "Parallel random numbers: as easy as
1, 2, 3", 2011), as ops on u32."""

from __future__ import annotations

from collections.abc import Sequence

from modelcc.ir.index import Index, product
from modelcc.ir.types import U32
from modelcc.ops.generate import Iota
from modelcc.tensor.lazy import apply
from modelcc.tensor.tensor import Tensor

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Bits by which words are turned: four rounds of one row, four of the other, and so on."""

PARITY = 0x1BD11BDA
"""What makes a third word of a key."""


def threefry(key: Tensor, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Two words for each pair of words, in 20 rounds; ``key`` is u32[..., 2]."""
    words = [key[..., 0], key[..., 1]]
    words.append(words[0] ^ words[1] ^ PARITY)
    x, y = first + words[0], second + words[1]
    for group in range(5):
        for bits in ROTATIONS[group % 2]:
            x = x + y
            y = _turned(y, bits) ^ x
        x = x + words[(group + 1) % 3]
        y = y + words[(group + 2) % 3] + (group + 1)
    return x, y


def _turned(x: Tensor, bits: int) -> Tensor:
    return (x << bits) | (x >> (32 - bits))


def counted(key: Tensor, shape: Sequence[Index]) -> tuple[Tensor, Tensor]:
    """Two words for each place of ``shape``, whose number in order is what is counted.

    Places have numbers of 32 bits: the upper word of the count is 0.
    """
    (low,) = apply(Tensor, Iota((product(shape),), 0, 0, 1, U32), ())
    x, y = threefry(key, low.of_number(0, U32), low)
    return x.reshape(tuple(shape)), y.reshape(tuple(shape))
