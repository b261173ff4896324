"""Checks shared by the tensor and the program level: of views, branches and loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from modelcc.ir.errors import ModelError
from modelcc.ir.index import Bounds, compare
from modelcc.ir.region import Carry
from modelcc.ir.tensor import View
from modelcc.ir.types import BOOL, TensorType


def verify_view(
    view: View, types: Mapping[str, TensorType], dims: Bounds, place: tuple[str, ...]
) -> None:
    """:class:`ModelError` unless both are one row-major buffer."""
    output, source = types[view.output], types[view.input]
    if output.dtype != source.dtype:
        raise ModelError(f"a view of {source} cannot be {output}: dtypes differ", place)
    if compare(output.elements, "==", source.elements, dims) is False:
        raise ModelError(f"a view of {source} cannot be {output}: sizes differ", place)
    if not (output.physical.is_row_major and source.physical.is_row_major):
        raise ModelError(f"a view of {source} as {output} needs row-major layouts", place)


def verify_carry(carry: Carry, types: Mapping[str, TensorType], place: tuple[str, ...]) -> None:
    """:class:`ModelError` unless the four tensors of a state are of one type."""
    wanted = types[carry.state]
    for name in (carry.initial, carry.next, carry.last):
        if types[name] != wanted:
            message = f"state {carry.state!r} is {wanted}, but {name!r} is {types[name]}"
            raise ModelError(message, place)


def verify_condition(name: str, types: Mapping[str, TensorType], place: tuple[str, ...]) -> None:
    """:class:`ModelError` unless a tensor is one bool."""
    type = types[name]
    if type.dtype != BOOL or type.elements != 1:
        raise ModelError(f"condition {name!r} must be one bool, not {type}", place)


def verify_states(
    states: Mapping[str, str],
    inputs: Sequence[str],
    outputs: Sequence[str],
    types: Mapping[str, TensorType],
    where: tuple[str, ...],
) -> None:
    """:class:`ModelError` unless each of ``states`` is an output, once, with an input of its own
    of the same type."""
    taken = Counter(states.values())
    for output, before in states.items():
        if outputs.count(output) != 1:
            raise ModelError(f"state '{output}' is no output, or several", where)
        if before not in inputs:
            raise ModelError(f"'{before}', which state '{output}' replaces, is no input", where)
        if taken[before] > 1:
            raise ModelError(f"'{before}' is replaced by two states", where)
        if types[output] != types[before]:
            message = f"state '{output}' is {types[output]}, but '{before}' is {types[before]}"
            raise ModelError(message, where)
