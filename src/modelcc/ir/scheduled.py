"""Tensor-level items after scheduling: what program lowering consumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from modelcc.ir.constant import Constant
from modelcc.ir.index import Bounds, Index, Range
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.loop import Function
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, View
from modelcc.ir.types import TensorType


@dataclass(frozen=True)
class KernelCall:
    """One kernel as a loop function and the tensors bound to its buffer parameters, in order.

    ``sizes`` are the values of the function's size parameters.  Functions are named by their
    content's shape, not by tensor names, so that equal layers give equal functions.
    ``in_place`` lists (output, input) tensors that may share one buffer: same size, and every
    input element is read only to compute the output element at the same offset.
    ``partial`` names outputs of which this kernel writes a part only (concatenation).
    ``bounds`` are those of the function's checks, by their numbers, and ``rounding`` is the
    kernel's.
    """

    function: Function
    arguments: tuple[str, ...]
    sizes: tuple[Index, ...] = ()
    outputs: tuple[str, ...] = ()
    in_place: tuple[tuple[str, str], ...] = ()
    partial: tuple[str, ...] = ()
    source: tuple[str, ...] = ()
    bounds: tuple[IndexBound, ...] = ()
    rounding: float = 1.0


ScheduledLeaf: TypeAlias = KernelCall | View | ReadSize
ScheduledItem: TypeAlias = "ScheduledLeaf | Branch[ScheduledItem] | Repeat[ScheduledItem]"


def leaf_calls(items: Sequence[ScheduledItem]) -> Iterator[ScheduledLeaf]:
    """Items that hold no others, in the order of the text."""
    for item in items:
        match item:
            case Branch():
                yield from leaf_calls((*item.then, *item.other))
            case Repeat():
                yield from leaf_calls(item.body)
            case _:
                yield item


def scheduled_tensors(item: ScheduledItem) -> tuple[str, ...]:
    """Every tensor that an item and those in it touch, each once."""
    match item:
        case KernelCall() | ReadSize():
            found = item.arguments
        case View():
            found = (item.input, item.output)
        case Branch():
            inner = (n for i in (*item.then, *item.other) for n in scheduled_tensors(i))
            found = (item.condition, *inner)
        case Repeat():
            own = (n for c in item.carries for n in (c.initial, c.state, c.next, c.last))
            found = (*own, *(n for i in item.body for n in scheduled_tensors(i)))
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class ScheduledProgram:
    """A tensor program whose kernels are scheduled, with its constants packed.

    ``types`` carries the physical layout of every tensor that is stored in memory.  ``notes`` tell
    the user what of their wishes was not done.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    items: tuple[ScheduledItem, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, Constant] = field(default_factory=dict[str, Constant])
    dims: Bounds = field(default_factory=dict[str, Range])
    notes: tuple[str, ...] = ()

    @cached_property
    def read_sizes(self) -> tuple[str, ...]:
        """Symbols that have no value before a step reads it, in order."""
        reads = (item for item in leaf_calls(self.items) if isinstance(item, ReadSize))
        return tuple(name for item in reads for name in item.symbols)
