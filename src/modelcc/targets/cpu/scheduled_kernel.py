"""The result of scheduling a kernel, and the size of work worth several threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from modelcc.ir.index import Index
from modelcc.ir.library import Callee
from modelcc.ir.loop import Buffer, Parameter
from modelcc.ir.types import Layout, TensorType
from modelcc.schedule.schedule import Schedule

PARALLEL_CHUNKS = 16
"""Minimum number of iterations of a parallel loop, if possible."""


@dataclass(frozen=True)
class ScheduledKernel:
    """A canonical kernel as a function, the layouts its constants want, and in-place pairs.

    ``schedule`` is how it runs; None if it is no kernel of stages.  ``sizes`` are the arguments for
    sizes of the function that are not dimensions of the kernel, as expressions of these.  After the
    kernel's tensors the function takes ``working`` memory, which launches are given later.
    """

    function: Callee
    layouts: Mapping[str, Layout]
    in_place: tuple[tuple[str, str], ...]
    schedule: Schedule | None = None
    sizes: Mapping[str, Index] = field(default_factory=dict[str, Index])
    working: frozenset[str] = frozenset()


def buffer_parameter(
    name: str, type_: TensorType, mutable: bool, shared: frozenset[str]
) -> Parameter:
    """The parameter for a tensor; ``shared`` names those that may alias."""
    size: Index = type_.physical.size(type_.shape)
    return Parameter(Buffer(name, type_.dtype, size), mutable, name in shared)
