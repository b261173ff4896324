"""Checks of what a program keeps from call to call, on the tensor and the program level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from modelcc.ir.errors import ModelError
from modelcc.ir.types import TensorType


def verify_states(
    states: Mapping[str, str],
    inputs: Sequence[str],
    outputs: Sequence[str],
    types: Mapping[str, TensorType],
    where: tuple[str, ...],
) -> None:
    """:class:`ModelError` unless each of ``states`` is an output, once, with an input of its own
    and of its type."""
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
