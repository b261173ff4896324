"""Work on the caller's dicts, which compiled code does not know: done here, before it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from modelcc.ir.types import DTYPES, STRING, Array

Settings = Mapping[str, Any]


def vectorize_map(operands: Sequence[object], settings: Settings) -> tuple[Array]:
    """The values of the keys of the settings, [1, keys]; 0 (an empty text) for those not there."""
    given, dtype = _dict(operands[0]), settings["dtype"]
    return (_row([given.get(key, _nothing(dtype)) for key in settings["keys"]], dtype),)


def cast_map(operands: Sequence[object], settings: Settings) -> tuple[Array]:
    """The values, in the order of their keys, as ``dtype``, [1, values].

    With a ``length`` the keys are positions, up to there; what is not given is 0.
    """
    given, dtype = _dict(operands[0]), settings["dtype"]
    places = sorted(given) if settings["length"] < 0 else range(settings["length"])
    return (_row([given.get(key, _nothing(dtype)) for key in places], dtype),)


def _dict(operand: object) -> Mapping[Any, Any]:
    if not isinstance(operand, Mapping):
        raise ValueError(f"a dict is wanted, not a {type(operand).__name__}")
    return cast("Mapping[Any, Any]", operand)


def _nothing(dtype: str) -> object:
    return "" if dtype == STRING.name else 0


def _row(values: Sequence[Any], dtype: str) -> Array:
    if dtype == STRING.name:
        row = np.empty((1, len(values)), object)
        row[0, :] = [str(value) for value in values]
        return row
    read = float if DTYPES[dtype].is_float else int
    return np.array([[read(value) for value in values]], DTYPES[dtype].numpy)


MAP_FUNCTIONS: Mapping[str, Callable[[Sequence[object], Settings], tuple[Array, ...]]] = (
    MappingProxyType({"vectorize_map": vectorize_map, "cast_map": cast_map})
)
