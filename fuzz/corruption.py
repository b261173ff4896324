"""Mutations of a file's bytes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

Corruption = Callable[[bytearray, Random], None]


def flip_bits(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 2, 8, 32))):
        data[_place(data, random)] ^= 1 << random.randrange(8)


def truncate(data: bytearray, random: Random) -> None:
    del data[_place(data, random) :]


def insert(data: bytearray, random: Random) -> None:
    place = _place(data, random)
    data[place:place] = random.randbytes(random.choice((1, 2, 9, 64)))


def remove(data: bytearray, random: Random) -> None:
    place = _place(data, random)
    del data[place : place + random.choice((1, 2, 9, 64))]


def repeat(data: bytearray, random: Random) -> None:
    place, length = _place(data, random), random.choice((2, 16, 256))
    data[place:place] = data[place : place + length]


def overwrite(data: bytearray, random: Random) -> None:
    place = _place(data, random)
    value = random.choice((b"\x00", b"\xff", b"\x80", b"\x7f")) * random.choice((1, 4, 10))
    data[place : place + len(value)] = value


def move(data: bytearray, random: Random) -> None:
    start, length, goal = _place(data, random), random.choice((4, 32)), _place(data, random)
    piece = data[start : start + length]
    data[goal : goal + length] = piece


CORRUPTIONS: tuple[Corruption, ...] = (
    flip_bits, truncate, insert, remove, repeat, overwrite, move,
)  # fmt: skip


def corrupted(data: bytes, random: Random) -> tuple[str, bytes]:
    """The name of a corruption, and ``data`` after it."""
    corruption = random.choice(CORRUPTIONS)
    changed = bytearray(data)
    corruption(changed, random)
    return corruption.__name__, bytes(changed)


def _place(data: bytearray, random: Random) -> int:
    """Mostly near text, where names and structure are; weights are the bulk of a file."""
    if not data:
        return 0
    anywhere = random.randrange(len(data))
    if random.random() < 0.2:
        return anywhere
    for word in random.sample(WORDS, len(WORDS)):
        found = data.find(word, anywhere)
        if found >= 0:
            return max(0, min(len(data) - 1, found + random.randrange(-24, 24)))
    return anywhere


WORDS = (b"input", b"output", b"weight", b"Add", b"Conv", b"MatMul", b"Constant", b"axis", b"to")
"""Strings found in most models."""
