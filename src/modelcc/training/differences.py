"""Differences between the tensors of two models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from modelcc.ir.errors import ModelError
from modelcc.ir.types import Array, TensorType
from modelcc.tensor.lazy import array_type

SHOWN = 10
"""Differences that a message lists."""


def require_same(
    expected: Mapping[str, TensorType], given: Mapping[str, Array], where: str = "TrainStep.load"
) -> None:
    """:class:`ModelError` lists names, shapes and element types that differ."""
    found = list(differences(expected, given))
    if found:
        raise ModelError(
            "these are the values of another model or optimiser:\n" + listed(found),
            (where,),
            "load them into the model that they are of, with the same optimiser",
        )


def differences(expected: Mapping[str, TensorType], given: Mapping[str, Array]) -> Iterator[str]:
    """Lines on tensors that are missing, unexpected, or of another type."""
    for name, type in expected.items():
        if name not in given:
            yield f"{name} is missing: {type}"
    for name, array in given.items():
        found = array_type(array.shape, array.dtype)
        if name not in expected:
            yield f"{name} is unexpected: {found}"
        elif found.shape != expected[name].shape:
            yield f"{name} has another shape: {found}, expected {expected[name]}"
        elif found != expected[name]:
            yield f"{name} has another element type: {found}, expected {expected[name]}"


def listed(lines: Iterable[str]) -> str:
    """Joined lines, up to a limit."""
    given = list(lines)
    more = [f"  and {len(given) - SHOWN} more"] if len(given) > SHOWN else []
    return "\n".join([*(f"  {line}" for line in given[:SHOWN]), *more])
