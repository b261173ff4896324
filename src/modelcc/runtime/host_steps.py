"""Work that the runtime does before compiled code runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from modelcc.ir.structure import HostStep
from modelcc.ir.types import Array
from modelcc.runtime.errors import InputError
from modelcc.runtime.image_functions import IMAGE_FUNCTIONS
from modelcc.runtime.map_functions import MAP_FUNCTIONS
from modelcc.runtime.text_functions import TEXT_FUNCTIONS

Function = Callable[[Sequence[object], Mapping[str, Any]], tuple[Array, ...]]
"""Operands and settings to results; ValueError for operands that it cannot work on."""

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {**TEXT_FUNCTIONS, **IMAGE_FUNCTIONS, **MAP_FUNCTIONS}
)


def performed(step: HostStep, known: Mapping[str, object]) -> dict[str, Array]:
    """The results of ``step`` by name; InputError for an input that it cannot work on."""
    operands = [known[name] for name in step.inputs]
    try:
        results = FUNCTIONS[step.function](operands, cast("Mapping[str, Any]", step.settings))
    except ValueError as error:
        where = ", ".join(f"'{name}'" for name in step.inputs)
        node = step.outputs[0].rpartition(".")[0]
        raise InputError(f"input {where}", f"values for {node}", "others", str(error)) from error
    return dict(zip(step.outputs, results, strict=True))
