"""Arguments and results of a model that are no tensors, told in terms of tensors.

The compiler sees tensors only.  A sequence of known length is the tensors of its elements, an
optional value is there or not, and a sequence of maps with known keys is one tensor.  What the
caller gives and gets is put together from these by the interface that goes with a compiled model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from modelcc.ir.call_form import CallForm


@dataclass(frozen=True)
class Records:
    """A list of dicts with the same ``keys``: row i of ``tensor``, [n, len(keys)], is dict i."""

    keys: tuple[str | int, ...]
    tensor: str


Structure: TypeAlias = "str | Records | tuple[Structure, ...] | None"
"""A tensor by name, a list of structures, a list of dicts; None is None."""


def leaves_of(structure: Structure) -> Iterator[str]:
    """Names of the tensors that a structure is made of."""
    match structure:
        case str():
            yield structure
        case Records():
            yield structure.tensor
        case tuple():
            for part in structure:
                yield from leaves_of(part)
        case None:
            pass


Setting: TypeAlias = "str | int | float | tuple[Setting, ...]"


@dataclass(frozen=True)
class HostStep:
    """Work on texts, dicts or encoded images that the runtime does before compiled code runs.

    ``function`` is one of :mod:`modelcc.runtime.host_steps`; inputs are the caller's values
    or results of earlier steps, and results are inputs of the compiled code.
    """

    function: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: Mapping[str, Setting]

    def __str__(self) -> str:
        return f"{', '.join(self.outputs)} = {self.function}({', '.join(self.inputs)})"


@dataclass(frozen=True)
class ModelState:
    """A tensor that is kept from call to call: ``input`` is what it is before one, ``output`` after
    it.  ``given``: the model has contents to begin with; else these are zeros."""

    input: str
    output: str
    given: bool = False


@dataclass(frozen=True)
class Interface:
    """What a model takes and returns, by the user's names, in order.

    The elements of tensors in ``strings`` are handles of texts: 0, 1, … of those in ``texts``,
    which the model knows, further ones of others.  ``steps`` come before compiled code.  ``states``
    are neither given nor returned.  ``call`` tells in which containers callers have them.
    """

    inputs: Mapping[str, Structure]
    outputs: Mapping[str, Structure]
    strings: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    steps: tuple[HostStep, ...] = ()
    states: Mapping[str, ModelState] = field(default_factory=dict[str, ModelState])
    call: CallForm | None = None

    @property
    def is_plain(self) -> bool:
        """Whether all of it are tensors as they are."""
        return not (self.steps or self.states) and self.has_tensors_alone

    @property
    def has_tensors_alone(self) -> bool:
        """Whether what is given and returned are tensors."""
        return all(isinstance(s, str) for s in (*self.inputs.values(), *self.outputs.values()))


def states_of(interface: Interface | None) -> Mapping[str, ModelState]:
    """What a model keeps from call to call."""
    return {} if interface is None else interface.states
