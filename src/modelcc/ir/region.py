"""Branches and loops at any level, which contain nested lists of items.

Names are those of the whole program: inner items read outer tensors directly.  What they define is
dropped after the region, except for its outputs.

A loop's ``counter`` is an index symbol inside it; slices of scanned tensors are read, and parts of
filled ones written, at indices that depend on it::

    repeat [t < 64] carry(%h: f32[1, 8] = %first then %next last %final) fill(%y: f32[64, 1, 8]) {
      kernel @step(%x: f32[64, 1, 8], %h: f32[1, 8]) -> (%next: f32[1, 8], %y: f32[64, 1, 8]) { …
    }
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeAlias, TypeVar, cast

from modelcc.ir.index import Bounds, Index, Range

I = TypeVar("I")  # noqa: E741

TensorName: TypeAlias = str
"""Annotates fields that name tensors."""


@dataclass(frozen=True)
class Branch(Generic[I]):
    """Runs ``then`` if the bool tensor ``condition`` (one element) holds, else ``other``.

    Kernels of either side define all of ``outputs``.
    """

    condition: TensorName
    outputs: tuple[TensorName, ...]
    then: tuple[I, ...]
    other: tuple[I, ...]
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class Carry:
    """State of a loop, four tensors of one type.

    ``state`` is the value at the start of an iteration: ``initial`` at first, then what the
    previous iteration computed as ``next`` (by a kernel of the body, for one carry only).  ``last``
    is the state after the loop.
    """

    state: TensorName
    initial: TensorName
    next: TensorName
    last: TensorName


@dataclass(frozen=True)
class Repeat(Generic[I]):
    """Runs ``body`` with ``counter`` at 0, 1, … before ``trips`` (None: no bound).

    With ``condition``, the name of a state, it ends before the first iteration at whose start
    that bool tensor (one element) is false.  One of the two is given.  Iterations fill parts of
    ``filled``; the last write to an element wins, and elements never written are undefined.
    """

    counter: str
    trips: Index | None
    carries: tuple[Carry, ...]
    filled: tuple[TensorName, ...]
    body: tuple[I, ...]
    condition: TensorName | None = None
    source: tuple[str, ...] = ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Tensors that are defined after the loop."""
        return (*(c.last for c in self.carries), *self.filled)

    def inside(self, dims: Bounds) -> dict[str, Range]:
        """``dims`` with the range of the counter."""
        last = None if self.trips is None else self.trips - 1
        return {**dims, self.counter: Range(0, last)}


def map_leaves(items: Iterable[I], change: Callable[[I], I]) -> tuple[I, ...]:
    """``items`` with all those changed that contain no others, at any depth."""
    result: list[I] = []
    for item in items:
        if isinstance(item, Branch):
            branch = cast("Branch[I]", item)
            then, other = map_leaves(branch.then, change), map_leaves(branch.other, change)
            result.append(cast(I, replace(branch, then=then, other=other)))
        elif isinstance(item, Repeat):
            loop = cast("Repeat[I]", item)
            result.append(cast(I, replace(loop, body=map_leaves(loop.body, change))))
        else:
            result.append(change(item))
    return tuple(result)
