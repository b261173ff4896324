"""Program level: the host program — an arena with planned offsets, and steps.

Sizes and offsets are index expressions of the model's named dimensions (and of earlier
``definitions``), evaluated once per call signature.

    program @model(%x: f32[batch, 784]) -> (%y: f32[batch, 10]) {
      constant %w : f32[784, 512] digest 3f…
      arena 64-aligned, size = a0 + 2048*batch
      region %h = arena[0 .. 2048*batch]
      launch @gemm_bias_relu(%x, %w, %b, %h; batch) from "fc1"
    }

Steps nest: a branch and a loop hold steps.  A loop's counter is an index symbol inside it, for
sizes of launches and for offsets, so that iterations address slices of tensors in place, and
state that cannot be updated in place alternates between two halves of a buffer.

Sizes may depend on data: a step reads index symbols from memory, to be used after it in its
block.  What they make large without bounds is allocated then::

      launch @count_nonzero(%x, %count)
      read n = %count
      allocate %y size 8*n
      launch @nonzero(%x, %y; n)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from modelcc.ir.condition import Condition
from modelcc.ir.constant import Constant
from modelcc.ir.index import Bounds, Index, Range
from modelcc.ir.index_bound import IndexBound
from modelcc.ir.loop import Function
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, size_conditions
from modelcc.ir.types import TensorType

Place = Literal["input", "output", "constant", "arena"]


@dataclass(frozen=True)
class Binding:
    """Where a named tensor lives.  ``offset`` is in bytes, into the arena; 0 elsewhere.

    It may mention the counter of a loop that all steps naming the tensor are in.  ``segment``
    names a part of the arena that is allocated while the program runs.
    """

    name: str
    type: TensorType
    place: Place
    offset: Index = 0
    segment: str = ""


@dataclass(frozen=True)
class Definition:
    """Names an index expression evaluated before the steps (offsets of symbolic arenas)."""

    symbol: str
    value: Index


@dataclass(frozen=True)
class Launch:
    """Runs kernel ``function`` on tensors, in parameter order, and index arguments.

    The run ends after it if it has met an index outside of one of ``bounds``, which are those of
    the function's checks by their numbers.  ``rounding`` is that of the tensor level's kernel.
    """

    function: str
    arguments: tuple[str, ...]
    sizes: tuple[Index, ...] = ()
    source: tuple[str, ...] = ()
    bounds: tuple[IndexBound, ...] = ()
    rounding: float = 1.0


@dataclass(frozen=True)
class CopyTensor:
    """Copies a tensor's buffer byte by byte (a graph output that is also an input, say)."""

    target: str
    source_tensor: str
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class Allocate:
    """Asks the host for ``size`` bytes, known only now, for an output or a segment ``name``."""

    name: str
    size: Index
    source: tuple[str, ...] = ()


Leaf: TypeAlias = Launch | CopyTensor | ReadSize | Allocate
Step: TypeAlias = "Leaf | Branch[Step] | Repeat[Step]"
"""Branches and loops have no outputs here: what goes into them and out is copied, or in its place."""


def leaves(steps: Sequence[Step]) -> Iterator[Leaf]:
    """Steps that hold no others, in the order of the text."""
    for step in steps:
        match step:
            case Branch():
                yield from leaves(step.then)
                yield from leaves(step.other)
            case Repeat():
                yield from leaves(step.body)
            case _:
                yield step


def counters(steps: Sequence[Step]) -> dict[str, int]:
    """Counters of the loops among steps, at their first iteration."""
    found: dict[str, int] = {}
    for step in steps:
        match step:
            case Branch():
                found |= counters((*step.then, *step.other))
            case Repeat():
                found |= {step.counter: 0, **counters(step.body)}
            case _:
                pass
    return found


def step_tensors(step: Step) -> tuple[str, ...]:
    """Names of the tensors that a step and those in it touch, each once."""
    match step:
        case Launch() | ReadSize():
            found = step.arguments
        case Allocate():
            found = ()
        case CopyTensor():
            found = (step.target, step.source_tensor)
        case Branch():
            inner = (n for s in (*step.then, *step.other) for n in step_tensors(s))
            found = (step.condition, *inner)
        case Repeat():
            own = () if step.condition is None else (step.condition,)
            found = (*own, *(n for s in step.body for n in step_tensors(s)))
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Program:
    """The whole compiled model: what the runtime executes and the emitters print.

    ``bindings`` names every tensor a step mentions; views share place and offset with their base.
    ``arena`` is the arena's size in bytes.  Every binding starts at a multiple of 64 bytes.
    ``dims`` bounds the inputs' dimensions, then the symbols that steps read from memory.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bindings: Mapping[str, Binding]
    functions: tuple[Function, ...]
    steps: tuple[Step, ...]
    arena: Index
    definitions: tuple[Definition, ...] = ()
    constants: Mapping[str, Constant] = field(default_factory=dict[str, Constant])
    dims: Bounds = field(default_factory=dict[str, Range])

    @cached_property
    def read_sizes(self) -> tuple[str, ...]:
        """Symbols that have no value before a step reads it, in order."""
        return tuple(n for s in leaves(self.steps) if isinstance(s, ReadSize) for n in s.symbols)

    @cached_property
    def allocated(self) -> tuple[str, ...]:
        """Outputs and segments that the host is asked for while the program runs, in order."""
        found = (s.name for s in leaves(self.steps) if isinstance(s, Allocate))
        return tuple(dict.fromkeys(found))

    def position(self, binding: Binding) -> int:
        """Which of the inputs, outputs or constants a tensor is; ``KeyError`` if it is none."""
        return self._positions[binding.place][binding.name]

    @cached_property
    def _positions(self) -> Mapping[Place, Mapping[str, int]]:
        places: tuple[Place, ...] = ("input", "output", "constant")
        return {
            place: {name: n for n, name in reversed(list(enumerate(self.named(place))))}
            for place in places
        }

    def named(self, place: Place) -> tuple[str, ...]:
        """The tensors that are passed as inputs, outputs or constants, in order."""
        match place:
            case "input":
                return self.inputs
            case "output":
                return self.outputs
            case "constant":
                return tuple(self.constants)
            case "arena":
                return ()


@dataclass(frozen=True)
class Check:
    """What must hold when ``step`` has read its symbols, or the run ends there."""

    step: ReadSize
    condition: Condition


def checks(program: Program) -> tuple[Check, ...]:
    """Every check, in the order of the text; a run that fails one ends with 1 + its position."""
    found: list[Check] = []
    for step in leaves(program.steps):
        if isinstance(step, ReadSize):
            found += (Check(step, c) for c in size_conditions(step, program.dims))
    return tuple(found)


def index_bounds(program: Program) -> tuple[IndexBound, ...]:
    """What indices from memory must lie in, in the order of the text.

    A run that meets one outside ends with 1 + the number of :func:`checks` + its position here,
    and with the value in the first 8 bytes of the arena, which has at least :data:`FAULT_BYTES`.
    """
    launches = (step for step in leaves(program.steps) if isinstance(step, Launch))
    return tuple(bound for launch in launches for bound in launch.bounds)


FAULT_BYTES = 64
"""Least size of an arena that an index may be noted in."""
