"""How well warps ask for memory: sectors of 32 bytes of the GPU's, and how often shared memory has
to answer because numbers lie in one bank (CUDA C++ Best Practices Guide, chapter 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from ptx_emulator.fragments import WARP

from modelcc.ir.types import Array

SECTOR, BANKS, WORD = 32, 32, 4


@dataclass
class Requests:
    """Of an instruction: what its warps' requests take, in sectors or answers, and the least that
    as many bytes would."""

    warps: int = 0
    taken: int = 0
    least: int = 0

    @property
    def more(self) -> int:
        """What better places would save."""
        return self.taken - self.least


class Traffic:
    """All requests, by kernel, space and instruction."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, str], Requests] = {}

    def count(
        self, kernel: str, space: str, text: str, warps: Array, threads: Array, places: Array,
        size: int,
    ) -> None:  # fmt: skip
        """Requests of threads of warps, each for ``size`` bytes."""
        row = self.requests.setdefault((kernel, space, text), Requests())
        row.warps += len(np.unique(warps))
        taken, least = (
            _answers(warps * WARP + threads % WARP, places, size)
            if space == "shared"
            else _sectors(warps, places, size)
        )
        row.taken, row.least = row.taken + taken, row.least + least

    def worst(self, count: int) -> Iterator[str]:
        """Lines about the instructions that take most in vain."""
        rows = sorted(self.requests.items(), key=lambda row: -row[1].more)[:count]
        for (kernel, space, text), row in rows:
            if row.more:
                parts = f"{row.taken:>9} for {row.least:>9} of {row.warps:>8} warps"
                yield f"{space:7} {parts}  {kernel}: {text}"


def _sectors(warps: Array, places: Array, size: int) -> tuple[int, int]:
    steps = places[:, None] + np.arange(0, size, min(size, SECTOR))
    owners = np.broadcast_to(warps[:, None], steps.shape)
    pairs = np.unique(np.stack([owners.reshape(-1), steps.reshape(-1) // SECTOR]), axis=1)
    own = np.unique(np.stack([warps, places]), axis=1)
    held = np.bincount(own[0] - own[0].min()) * size
    return pairs.shape[1], int((-(-held // SECTOR)).sum())


def _answers(lanes: Array, places: Array, size: int) -> tuple[int, int]:
    """Of as many threads at once as ask for 128 bytes, one for each word of the fullest bank."""
    at_once = lanes // (WARP * WORD // max(size, WORD))
    steps = places[:, None] // WORD + np.arange(max(1, size // WORD))
    owners = np.broadcast_to(at_once[:, None], steps.shape)
    pairs = np.unique(np.stack([owners.reshape(-1), steps.reshape(-1)]), axis=1)
    banks = (pairs[0] - pairs[0].min()) * BANKS + pairs[1] % BANKS
    full = np.bincount(banks, minlength=int(banks.max()) // BANKS * BANKS + BANKS)
    most = full.reshape(-1, BANKS).max(1)
    return int(most.sum()), int((most > 0).sum())
