"""The interface of a compiled model, in C's terms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.index import Index
from modelcc.ir.loop_traversal import parallel_loop
from modelcc.ir.program import Program
from modelcc.ir.structure import Interface, states_of
from modelcc.ir.types import TensorType
from modelcc.targets.c.delivery.block import WeightBlock, weights_of
from modelcc.targets.c.delivery.naming import field_names
from modelcc.targets.c.values import memory_type

WeightsForm = Literal["bin", "array", "incbin"]
"""A file that is loaded, a C array, or a file that the assembler includes."""


@dataclass(frozen=True)
class DeliveryRequest:
    """Options of a delivery: the prefix ``name``, and the form of the weights; ``arduino``: as a
    library for Arduino.

    ``origin`` is the model's file, ``version`` modelcc's; both are informational.  ``interface`` is
    the caller's view of the model (None: its tensors), ``initial`` the initial values of its
    states, unless they are zeros.
    """

    name: str
    weights: WeightsForm = "bin"
    origin: str = ""
    version: str = ""
    interface: Interface | None = None
    initial: Mapping[str, Constant] = field(default_factory=dict[str, Constant])
    arduino: bool = False


@dataclass(frozen=True)
class CompilerTarget:
    """The target of the code: its name, compiler options, and macros that these must define."""

    name: str
    flags: tuple[str, ...] = ()
    macros: tuple[str, ...] = ()


Side = Literal["input", "output", "state"]


@dataclass(frozen=True)
class Tensor:
    """An input, output or state: the user's name, the field's name, and the number passed to the
    caller's allocator (None: its memory is known before the call)."""

    name: str
    field: str
    type: TensorType
    side: Side
    memory: int | None = None

    @property
    def element(self) -> str:
        """C type of an element."""
        try:
            return memory_type(self.type.dtype.storage)
        except TypeError as error:
            raise ModelError(
                f"{self.side} {self.name!r} is of {self.type.dtype}, which C has no form for",
                (),
                "compile it to a .mcc file, or leave that part out of the model",
            ) from error

    @property
    def is_static(self) -> bool:
        """Whether its extents are integers."""
        return self.type.is_static


@dataclass(frozen=True)
class DeliveredState:
    """A state kept between calls: the program's input for it, and the offset of its initial value
    in the weights (None: zeros)."""

    tensor: Tensor
    input: str
    offset: int | None


@dataclass(frozen=True)
class Dimension:
    """A symbolic dimension that the caller gives, within inclusive bounds (``high`` None: any)."""

    name: str
    field: str
    low: int
    high: int | None


@dataclass(frozen=True)
class DeliveredModel:
    """A compiled model: its program, and all facts that its files state."""

    request: DeliveryRequest
    program: Program
    processor: CompilerTarget
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    dims: tuple[Dimension, ...]
    memories: tuple[str, ...]
    checks: tuple[str, ...]
    weights: WeightBlock | None
    level: int
    threads: int
    states: tuple[DeliveredState, ...] = ()

    @property
    def name(self) -> str:
        """Prefix of functions and types."""
        return self.request.name

    @property
    def macro(self) -> str:
        """Prefix of macros and constants."""
        return self.request.name.upper()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Inputs, then outputs, then states."""
        return (*self.inputs, *self.outputs, *(state.tensor for state in self.states))

    @property
    def starts_from_weights(self) -> bool:
        """Whether the weights have initial values of states."""
        return any(state.offset is not None for state in self.states)

    @property
    def sized(self) -> tuple[Tensor, ...]:
        """Tensors whose sizes follow from the symbolic dimensions."""
        return tuple(t for t in self.tensors if not t.is_static and t.memory is None)

    @cached_property
    def is_parallel(self) -> bool:
        """Whether there are parallel loops."""
        return any(map(parallel_loop, self.program.functions))

    @property
    def has_pool(self) -> bool:
        """Whether it includes a thread pool."""
        return self.threads > 1 and self.is_parallel

    @property
    def arena(self) -> Index:
        """Bytes of scratch memory."""
        return self.program.placed.arena

    @property
    def static_arena(self) -> int | None:
        """Bytes of scratch memory if static."""
        return self.arena if isinstance(self.arena, int) else None


def facts_of(
    program: Program,
    request: DeliveryRequest,
    processor: CompilerTarget,
    outputs: Sequence[str],
    checks: Iterable[str],
    level: int,
    threads: int,
) -> DeliveredModel:
    """The facts of ``program``, whose ``outputs`` have these names for the user.

    :class:`ModelError` for what cannot be expressed in C: strings, and work that the runtime does.
    """
    _check_interface(request.interface)
    dynamic = program.allocated
    fields = field_names(dynamic)
    kept = frozenset(program.states.values())
    inputs = [name for name in program.inputs if name not in kept]
    names = zip(program.outputs, outputs, strict=True)
    made = {bound: name for bound, name in names if bound not in program.states}
    first = {first_name(name): constant for name, constant in request.initial.items()}
    weights = weights_of({**program.constants, **first})
    return DeliveredModel(
        request,
        program,
        processor,
        _tensors(program, "input", inputs, inputs),
        _tensors(program, "output", [*made], [*made.values()]),
        _dimensions(program),
        fields,
        tuple(checks),
        weights,
        level,
        threads,
        _states(program, request, weights),
    )


def first_name(state: str) -> str:
    """Name in the weights of a state's initial value."""
    return f"{state} at first"


def _states(
    program: Program, request: DeliveryRequest, weights: WeightBlock | None
) -> tuple[DeliveredState, ...]:
    """States by their names, else by those of the corresponding inputs."""
    known = {s.input: name for name, s in states_of(request.interface).items()}
    kept = [name for name in program.inputs if name in program.states.values()]
    tensors = _tensors(program, "state", kept, [known.get(name, name) for name in kept])
    table = () if weights is None else weights.table
    places = {spec.name: spec.offset for spec in table}
    return tuple(
        DeliveredState(tensor, name, places.get(first_name(tensor.name)))
        for tensor, name in zip(tensors, kept, strict=True)
    )


def _check_interface(interface: Interface | None) -> None:
    if interface is None:
        return
    if interface.steps:
        work = ", ".join(dict.fromkeys(step.function for step in interface.steps))
        raise ModelError(
            f"the model needs work on what the caller gives ({work}), which has no form in C",
            (),
            "compile it to a .mcc file and run that, or take those nodes out of the model",
        )
    if interface.strings:
        raise ModelError(
            f"{interface.strings[0]!r} is a tensor of texts, which has no form in C",
            (),
            "compile it to a .mcc file and run that, or take the texts out of the model",
        )


def _tensors(
    program: Program, side: Side, bound: Sequence[str], names: Sequence[str]
) -> tuple[Tensor, ...]:
    dynamic = {name: number for number, name in enumerate(program.allocated)}
    fields = _fields(names, [own in dynamic for own in bound])
    return tuple(
        Tensor(name, field, program.types[own], side, dynamic.get(own))
        for own, name, field in zip(bound, names, fields, strict=True)
    )


def _fields(names: Sequence[str], is_dynamic: Sequence[bool]) -> tuple[str, ...]:
    """Field names that do not collide with the extents of others, which dynamic ones have in
    addition."""
    extents: set[str] = set()
    while True:
        fields = field_names(names, extents)
        found = {
            f"{field}_dims" for field, dynamic in zip(fields, is_dynamic, strict=True) if dynamic
        }
        if found <= extents:
            return fields
        extents |= found


def _dimensions(program: Program) -> tuple[Dimension, ...]:
    known = {n: r for n, r in program.dims.items() if n not in program.read_sizes}
    found: list[Dimension] = []
    for (name, bounds), spelled in zip(known.items(), field_names(known), strict=True):
        low = bounds.lo if isinstance(bounds.lo, int) else 0
        high = bounds.hi if isinstance(bounds.hi, int) else None
        found.append(Dimension(name, spelled, low, high))
    return tuple(found)
