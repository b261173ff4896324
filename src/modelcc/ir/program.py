"""Program level: the host program — steps, the functions that they call, and memory locations.

Scheduling makes a program without ``placement``: every tensor has memory of its own, branches and
loops return what they compute, and a view is another name::

    program @model {
      input %x: f32[batch, 784]
      launch @gemm(%x, %w, %h; batch) from "fc1"
      view %v = %h
      launch @softmax(%v, %y; batch) in_place(%y over %v)
    }

Memory planning adds one: an arena with offsets for all but arguments and constants.  A view has the
location of its base, and states that are not updated in place are copied::

      arena 2048*batch
      place %h: f32[batch, 512] at 0

Sizes and offsets are index expressions of the model's named dimensions (and of earlier
``definitions``), evaluated once per call signature.  A loop's counter is an index symbol inside
it, for sizes of launches and for offsets, so that iterations address slices of tensors in place,
and a state that cannot be updated in place alternates between two halves of a buffer.

Sizes may depend on data: a step reads index symbols from memory, which later steps of its block may
use.  Tensors whose sizes they leave unbounded are allocated then::

      launch @count_nonzero(%x, %count)
      read n = %count
      allocate %y size 8*n
      launch @nonzero(%x, %y; n)

A program for a device has two memories with the same layout; steps transfer tensors between them
(:mod:`modelcc.passes.program.place_transfers`)::

      transfer %x to device
      launch @relu(%x, %y)
      transfer %y to host

A *state* is an output with the input that it is the next value of.  Before memory is planned that
is a hint; then the output shares the input's memory, and is written after all reads of that::

      state %next over %w
      launch @sgd(%w, %dw, %next)
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
from modelcc.ir.library import Callee, ExternalCall, LibraryFunction
from modelcc.ir.loop import Function
from modelcc.ir.memory_rules import ALIGNMENT
from modelcc.ir.region import Branch, Repeat
from modelcc.ir.tensor import ReadSize, View, size_conditions
from modelcc.ir.types import TensorType

Place = Literal["input", "output", "constant", "arrivals", "arena"]


@dataclass(frozen=True)
class Binding:
    """Location of a tensor.  ``offset`` is in bytes, into the arena; 0 elsewhere.

    A state's output is in the memory of its input, ``"input"``.

    Offsets may use the counter of a loop that contains all steps with the tensor.  ``segment``
    names a part of the arena that is allocated while the program runs.
    """

    place: Place
    offset: Index = 0
    segment: str = ""


@dataclass(frozen=True)
class Definition:
    """Names an index expression evaluated before the steps (offsets of symbolic arenas)."""

    symbol: str
    value: Index


@dataclass(frozen=True)
class Placement:
    """Location of every tensor that a step uses; views are bound to their bases' locations.

    ``arena`` is the arena's size in bytes.  Every binding starts at a multiple of ``alignment``.
    ``room`` has offsets in the arena where the caller may have inputs and outputs: such an input is
    overwritten once it is dead.  Of a pair of ``overlaps`` the first one, which a loop fills,
    overwrites what the loop has already read of the second.
    """

    bindings: Mapping[str, Binding]
    arena: Index = 0
    definitions: tuple[Definition, ...] = ()
    alignment: int = ALIGNMENT
    room: Mapping[str, int] = field(default_factory=dict[str, int])
    overlaps: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Launch:
    """Runs ``callee`` on tensors, in parameter order, and index arguments.

    The run ends after it if an index was outside of one of ``bounds``, which are those of the
    function's checks by number.  ``rounding`` is that of the tensor level's kernel.

    For memory planning, ``in_place`` lists (output, input) tensors that may share one buffer, since
    they have one size and every input element is read only to compute the output element at the
    same offset; ``partial`` names outputs that are only partly written (concatenation).
    """

    callee: str
    arguments: tuple[str, ...]
    sizes: tuple[Index, ...] = ()
    source: tuple[str, ...] = ()
    bounds: tuple[IndexBound, ...] = ()
    rounding: float = 1.0
    in_place: tuple[tuple[str, str], ...] = ()
    partial: tuple[str, ...] = ()


@dataclass(frozen=True)
class CopyTensor:
    """Copies a tensor's buffer byte by byte (a graph output that is also an input, say)."""

    target: str
    source_tensor: str
    source: tuple[str, ...] = ()


@dataclass(frozen=True)
class Allocate:
    """Allocates ``size`` bytes, known only now, for an output or a segment ``name``."""

    name: str
    size: Index
    source: tuple[str, ...] = ()


Side: TypeAlias = Literal["device", "host"]
"""In a program for a device: where functions of groups run, and where all others do."""


@dataclass(frozen=True)
class Transfer:
    """Copies ``tensor`` to the memory of the side ``to``, from that of the other.

    Device and host have memories with the same layout.  With unified memory it is a no-op.
    """

    tensor: str
    to: Side
    source: tuple[str, ...] = ()


Leaf: TypeAlias = Launch | View | CopyTensor | ReadSize | Allocate | Transfer
Step: TypeAlias = "Leaf | Branch[Step] | Repeat[Step]"
"""With a placement there are no views, and branches and loops have no carries or outputs; without
one nothing is copied or allocated."""


def inner_steps(step: Step) -> tuple[Step, ...]:
    """The steps inside a branch or loop."""
    match step:
        case Branch():
            return (*step.then, *step.other)
        case Repeat():
            return step.body
        case _:
            return ()


def leaves(steps: Sequence[Step]) -> Iterator[Leaf]:
    """Steps that contain no others, in the order of the text."""
    for step in steps:
        if isinstance(step, Branch | Repeat):
            yield from leaves(inner_steps(step))
        else:
            yield step


def counters(steps: Sequence[Step]) -> dict[str, int]:
    """Counters of the loops among steps, at their first iteration."""
    found: dict[str, int] = {}
    for step in steps:
        found |= {step.counter: 0} if isinstance(step, Repeat) else {}
        found |= counters(inner_steps(step))
    return found


def own_tensors(step: Step) -> tuple[str, ...]:
    """Names of the tensors that a step itself uses, not those of its inner steps."""
    match step:
        case Launch() | ReadSize():
            return step.arguments
        case View():
            return (step.input, step.output)
        case CopyTensor():
            return (step.target, step.source_tensor)
        case Transfer():
            return (step.tensor,)
        case Allocate():
            return ()
        case Branch():
            return (step.condition,)
        case Repeat():
            states = [n for c in step.carries for n in (c.initial, c.state, c.next, c.last)]
            return (*states,) if step.condition is None else (*states, step.condition)


def step_tensors(step: Step) -> tuple[str, ...]:
    """Names of the tensors that a step and its inner steps use, each once."""
    inner = (name for each in inner_steps(step) for name in step_tensors(each))
    return tuple(dict.fromkeys((*own_tensors(step), *inner)))


@dataclass(frozen=True)
class Program:
    """What runs on the host: the runtime executes it and emitters print it.

    ``types`` has the type, with its physical layout, of every tensor that a step uses.
    ``dims`` bounds the inputs' dimensions, then the symbols that steps read from memory.
    ``notes`` tell the user which requests were not met.  Without a ``placement`` memory is
    not planned yet.  ``states`` are outputs, each with the input whose memory it takes.
    ``arrivals`` are tensors that are only used as counters of arriving groups, all 0 before a run
    and therefore after it, in memory of their own.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    steps: tuple[Step, ...]
    types: Mapping[str, TensorType]
    callees: tuple[Callee, ...]
    constants: Mapping[str, Constant] = field(default_factory=dict[str, Constant])
    dims: Bounds = field(default_factory=dict[str, Range])
    notes: tuple[str, ...] = ()
    placement: Placement | None = None
    states: Mapping[str, str] = field(default_factory=dict[str, str])
    arrivals: tuple[str, ...] = ()

    @property
    def placed(self) -> Placement:
        """The placement; ``ValueError`` if memory is not planned yet."""
        if self.placement is None:
            raise ValueError(f"the memory of program {self.name!r} is not planned yet")
        return self.placement

    @property
    def room(self) -> Mapping[str, int]:
        """Offsets for inputs and outputs in the arena: none before memory is planned."""
        return dict[str, int]() if self.placement is None else self.placement.room

    @property
    def updated(self) -> Mapping[str, str]:
        """Outputs in the memory of an input, with it: the states, once memory is planned."""
        return self.states if self.placement is not None else dict[str, str]()

    @property
    def functions(self) -> tuple[Function, ...]:
        """The loop functions among the callees."""
        return tuple(callee for callee in self.callees if isinstance(callee, Function))

    @property
    def external_calls(self) -> tuple[ExternalCall, ...]:
        """The calls of library functions."""
        return tuple(c.call for c in self.callees if isinstance(c, LibraryFunction))

    @cached_property
    def callee(self) -> Mapping[str, Callee]:
        """The callees by their names."""
        return {callee.name: callee for callee in self.callees}

    def results(self, launch: Launch) -> tuple[str, ...]:
        """The tensors that a launch writes, in the order of the parameters."""
        pairs = zip(self.callee[launch.callee].parameters, launch.arguments, strict=True)
        return tuple(name for parameter, name in pairs if parameter.mutable)

    @cached_property
    def bases(self) -> Mapping[str, str]:
        """Views and their bases, which are not views themselves."""
        found: dict[str, str] = {}
        for step in leaves(self.steps):
            if isinstance(step, View):
                found[step.output] = found.get(step.input, step.input)
        return found

    @cached_property
    def read_sizes(self) -> tuple[str, ...]:
        """Symbols whose values steps read from memory, in order."""
        return tuple(n for s in leaves(self.steps) if isinstance(s, ReadSize) for n in s.symbols)

    @cached_property
    def allocated(self) -> tuple[str, ...]:
        """Outputs and segments that are allocated while the program runs, in order."""
        found = (s.name for s in leaves(self.steps) if isinstance(s, Allocate))
        return tuple(dict.fromkeys(found))

    def position(self, name: str) -> int:
        """The position among inputs, outputs, constants or arrivals of a tensor, or of the one
        whose memory it takes; ``KeyError`` if it is none of these."""
        place = self.placed.bindings[name].place
        return self._positions[place][self.states.get(name, name) if place == "input" else name]

    @cached_property
    def _positions(self) -> Mapping[Place, Mapping[str, int]]:
        places: tuple[Place, ...] = ("input", "output", "constant", "arrivals")
        return {
            place: {name: n for n, name in reversed(list(enumerate(self.named(place))))}
            for place in places
        }

    def named(self, place: Place) -> tuple[str, ...]:
        """The tensors that are passed as inputs, outputs, constants or arrivals, in order."""
        match place:
            case "input":
                return self.inputs
            case "output":
                return self.outputs
            case "constant":
                return tuple(self.constants)
            case "arrivals":
                return self.arrivals
            case "arena":
                return ()


def libraries(program: Program) -> tuple[str, ...]:
    """Names of the libraries that are called, each once."""
    return tuple(dict.fromkeys(call.library for call in program.external_calls))


@dataclass(frozen=True)
class SizeCheck:
    """Conditions that must hold when ``step`` has read its symbols, or the run ends there."""

    step: ReadSize
    condition: Condition


def checks(program: Program) -> tuple[SizeCheck, ...]:
    """Every check, in the order of the text; a run that fails one ends with 1 + its position."""
    found: list[SizeCheck] = []
    for step in leaves(program.steps):
        if isinstance(step, ReadSize):
            found += (SizeCheck(step, c) for c in size_conditions(step, program.dims))
    return tuple(found)


def index_bounds(program: Program) -> tuple[IndexBound, ...]:
    """Bounds of indices from memory, in the order of the text.

    A run that meets one outside ends with 1 + the number of :func:`checks` + its position here,
    and with the value in the first 8 bytes of the arena, which has at least :data:`FAULT_BYTES`.
    """
    launches = (step for step in leaves(program.steps) if isinstance(step, Launch))
    return tuple(bound for launch in launches for bound in launch.bounds)


FAULT_BYTES = 64
"""Least size of an arena in which an invalid index may be recorded."""
