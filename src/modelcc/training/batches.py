"""Batches: arrays of a dataset in a seeded order, or any iterable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from modelcc.ir.errors import ModelError
from modelcc.tensor.tensor import Tensor
from modelcc.tensor.trees import like, paths


@dataclass(frozen=True)
class Batches:
    """Arrays with samples along axis 0, as batches: ``Batches((x, y), 64)``.

    ``arrays`` is a tuple or a dict of arrays, and so is a batch.  Each epoch has its own order,
    which depends only on ``seed`` and the number of the epoch.  ``drop_last`` omits an incomplete
    batch, whose size would need a program of its own.
    """

    arrays: Any
    batch_size: int
    shuffle: bool = True
    seed: int = 0
    drop_last: bool = False

    def __post_init__(self) -> None:
        counts = {path: len(array) for path, array in paths(self.arrays)}
        if len(set(counts.values())) != 1 or not min(counts.values(), default=0):
            given = ", ".join(f"{path}: {count}" for path, count in counts.items()) or "none"
            raise ModelError(f"arrays of a dataset have as many samples each, not {given}",
                             ("Batches",))  # fmt: skip
        if not 1 <= self.batch_size <= max(counts.values()):
            raise ModelError(f"a batch has 1 to {max(counts.values())} samples, "
                             f"not {self.batch_size}", ("Batches",))  # fmt: skip

    @property
    def samples(self) -> int:
        """The number of samples."""
        return len(next(array for _, array in paths(self.arrays)))

    def __len__(self) -> int:
        """Batches of an epoch."""
        whole, rest = divmod(self.samples, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        return self.epoch(0)

    def epoch(self, number: int, start: int = 0) -> Iterator[Any]:
        """The batches of an epoch from number ``start`` on."""
        order = np.arange(self.samples)
        if self.shuffle:
            order = np.random.default_rng((self.seed, number)).permutation(self.samples)
        leaves = [leaf.numpy() if isinstance(leaf, Tensor) else leaf
                  for _, leaf in paths(self.arrays)]  # fmt: skip
        for place in range(start, len(self)):
            chosen = order[place * self.batch_size : (place + 1) * self.batch_size]
            yield like(self.arrays, iter([leaf[chosen] for leaf in leaves]))

    def identity(self) -> dict[str, int | bool]:
        """The parameters that determine the order of samples."""
        return {"samples": self.samples, "batch_size": self.batch_size, "seed": self.seed,
                "shuffle": self.shuffle, "drop_last": self.drop_last}  # fmt: skip


def arguments(batch: Any) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """A batch as arguments: positional from a tuple or a list, named from a dict."""
    if isinstance(batch, dict):
        return (), cast("dict[str, Any]", batch)
    if isinstance(batch, tuple | list):
        return tuple(cast("Sequence[Any]", batch)), {}
    return (batch,), {}


def as_arrays(tree: Any) -> Any:
    """``tree`` with tensors of any library converted to arrays."""
    if isinstance(tree, tuple | list):
        made = [as_arrays(item) for item in cast("Sequence[Any]", tree)]
        return made if isinstance(tree, list) else tuple(made)
    if isinstance(tree, dict):
        return {n: as_arrays(item) for n, item in cast("dict[str, Any]", tree).items()}
    return _as_array(tree)


def _as_array(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf.numpy()
    if type(leaf) in (int, float):
        return Tensor(leaf).numpy()
    if hasattr(leaf, "__array__"):
        return np.asarray(leaf)
    return np.from_dlpack(leaf) if hasattr(leaf, "__dlpack__") else leaf
