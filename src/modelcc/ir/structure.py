"""Structured arguments and results of a model, in terms of tensors.

The compiler handles tensors only.  A sequence of known length is the tensors of its elements, an
optional value is present or not, and a sequence of maps with known keys is one tensor.  The
interface of a compiled model converts the caller's values to and from these.
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
    """Names of the tensors in a structure."""
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
    """Work on strings, dicts or encoded images that the runtime does before compiled code runs.

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
    """A tensor that is kept between calls: ``input`` is its value before a call, ``output`` after
    it.  ``given``: the model has an initial value; else that is zero."""

    input: str
    output: str
    given: bool = False


@dataclass(frozen=True)
class Interface:
    """Arguments and results of a model, by the user's names, in order.

    The elements of tensors in ``strings`` are handles of strings: 0, 1, … of those in ``texts``,
    which the model contains, further ones of others.  ``steps`` precede compiled code.  ``states``
    are neither passed nor returned.  ``call`` gives the containers of the caller's tensors.
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
        """Whether all arguments and results are plain tensors."""
        return not (self.steps or self.states) and self.has_tensors_alone

    @property
    def has_tensors_alone(self) -> bool:
        """Whether arguments and results are tensors."""
        return all(isinstance(s, str) for s in (*self.inputs.values(), *self.outputs.values()))


def states_of(interface: Interface | None) -> Mapping[str, ModelState]:
    """The states that a model keeps between calls."""
    return {} if interface is None else interface.states
