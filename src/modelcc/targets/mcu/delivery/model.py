"""The interface of a model on a microcontroller, and the contents of its source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from modelcc.ir.constant import Constant
from modelcc.ir.errors import ModelError
from modelcc.ir.naming import user_name
from modelcc.ir.program import Program, checks, index_bounds, leaves, own_tensors
from modelcc.ir.types import Array, DType
from modelcc.targets.c.delivery.facts import (
    CompilerTarget,
    DeliveredModel,
    DeliveryRequest,
    Tensor,
    facts_of,
    first_name,
)
from modelcc.targets.c.delivery.naming import field_names
from modelcc.targets.c.names import symbol
from modelcc.targets.mcu.machine import McuModel
from modelcc.targets.packaging import check_text

_MOST = 1 << 31
"""Maximum bytes of a tensor with 32-bit indices."""

_TAKEN = "arena inputs outputs constants sizes pool host status"
"""Names with other meanings in the function that runs the steps."""


@dataclass(frozen=True)
class ConstantArray:
    """One array in flash: ``names`` are the program's constants with these contents, ``source``
    the model's nodes that read them."""

    field: str
    names: tuple[str, ...]
    array: Array
    dtype: DType
    source: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Its bytes of flash."""
        return self.array.size * self.dtype.bytes

    @property
    def is_weight(self) -> bool:
        """Whether it has several extents: else it is a table, or a scalar."""
        return sum(extent > 1 for extent in self.array.shape) > 1


@dataclass(frozen=True)
class EmbeddedModel:
    """A program of static shape, and the arrays of its constants."""

    facts: DeliveredModel
    machine: McuModel
    arena: int
    arrays: tuple[ConstantArray, ...]

    @property
    def name(self) -> str:
        """Prefix of functions, and of files."""
        return self.facts.name

    @property
    def macro(self) -> str:
        """Prefix of macros."""
        return self.facts.macro

    @property
    def program(self) -> Program:
        """The program that runs."""
        return self.facts.program

    @property
    def states(self) -> tuple[Tensor, ...]:
        """The states kept between calls."""
        return tuple(state.tensor for state in self.facts.states)

    @cached_property
    def spelled(self) -> dict[str, str]:
        """The source's names of inputs, outputs, states and constants, by the program's names."""
        program, facts = self.program, self.facts
        kept = {state.input: state.tensor.field for state in facts.states}
        given = iter(tensor.field for tensor in facts.inputs)
        made = iter(tensor.field for tensor in facts.outputs)
        found = {n: kept[n] if n in kept else next(given) for n in program.inputs}
        found |= {n: next(made) for n in program.outputs if n not in program.states}
        return found | {name: one.field for one in self.arrays for name in one.names}

    @cached_property
    def room(self) -> dict[str, int]:
        """Offsets in the arena where inputs and outputs may be, by their fields."""
        return {self.spelled[name]: at for name, at in self.program.placed.room.items()}

    def first(self, state: Tensor) -> ConstantArray | None:
        """The initial value of a state; None: zeros."""
        name = first_name(state.name)
        return next((one for one in self.arrays if name in one.names), None)


def embedded_model(program: Program, request: DeliveryRequest, machine: McuModel) -> EmbeddedModel:
    """``program`` as C99 without memory of its own.

    :class:`ModelError` for sizes that depend on run-time values, or exceed 32 bits.
    """
    _check(program)
    outputs = list(map(user_name, program.outputs))
    texts = [check_text(check) for check in checks(program)]
    texts += [bound.requirement() for bound in index_bounds(program)]
    facts = facts_of(program, request, CompilerTarget(machine.name), outputs, texts, 2, 1)
    tensors = [*facts.tensors]
    taken = {*_TAKEN.split(), *(tensor.field for tensor in tensors)}
    taken |= {symbol(callee.name) for callee in program.callees}
    constants = {**program.constants, **_initial(facts, request)}
    arena = program.placed.arena
    assert isinstance(arena, int)
    return EmbeddedModel(facts, machine, arena, _arrays(constants, taken, _readers(program)))


def _readers(program: Program) -> dict[str, dict[str, None]]:
    """The nodes that read each tensor."""
    found: dict[str, dict[str, None]] = {}
    for step in leaves(program.steps):
        for name in own_tensors(step):
            found.setdefault(name, {}).update(dict.fromkeys(step.source))
    return found


def _check(program: Program) -> None:
    named = [*program.dims]
    if program.allocated or program.read_sizes:
        raise ModelError(
            f"the sizes of {program.name} depend on its data, and a microcontroller's memory is "
            "given away before it runs",
            (), "take the nodes that find sizes (NonZero, Unique …) out of the model",
        )  # fmt: skip
    if named:
        hint = f"make it a number: --dim {named[0]}=1"
        raise ModelError(f"dimension {named[0]!r} of {program.name} is not known", (), hint)
    for name, type_ in program.types.items():
        if isinstance(type_.bytes, int) and type_.bytes >= _MOST:
            raise ModelError(f"{name!r} has {type_.bytes} bytes, too many for 32 bits", ())


def _initial(facts: DeliveredModel, request: DeliveryRequest) -> dict[str, Constant]:
    """The initial values of states, unless they are zeros."""
    known = {state.tensor.name for state in facts.states}
    found = ((n, c) for n, c in request.initial.items() if n in known and c.data.any())
    return {first_name(name): constant for name, constant in found}


def _arrays(
    constants: Mapping[str, Constant],
    taken: Iterable[str],
    readers: Mapping[str, Mapping[str, None]],
) -> tuple[ConstantArray, ...]:
    """Constants with the same type and bytes share one array; empty ones have none."""
    groups: dict[tuple[DType, bytes], list[str]] = {}
    for name, constant in constants.items():
        if constant.nbytes:
            key = constant.type.dtype.storage, np.ascontiguousarray(constant.data).tobytes()
            groups.setdefault(key, []).append(name)
    fields = field_names(_short([names[0] for names in groups.values()]), taken)

    def source(names: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node for name in names for node in readers.get(name, ())))

    return tuple(
        ConstantArray(field, tuple(names), constants[names[0]].data, dtype, source(names))
        for field, ((dtype, _), names) in zip(fields, groups.items(), strict=True)
    )


def _short(names: Sequence[str]) -> list[str]:
    """Names of tensors as readable identifiers: the last part of a path."""
    return [name.split(";")[0].rsplit("/", 1)[-1] or name for name in names]
