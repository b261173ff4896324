"""Runtime steps before compiled code: on strings, dicts, and encoded images."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from modelcc.ir.structure import HostStep
from modelcc.ir.types import DTYPES, STRING, Array
from modelcc.runtime.errors import InputError, RunError
from modelcc.runtime.text_functions import TEXT_FUNCTIONS

Settings = Mapping[str, Any]

Function = Callable[[Sequence[object], Settings], tuple[Array, ...]]
"""Operands and settings to results; ValueError for invalid operands."""

_PILLOW = "PIL.Image"
"""An optional dependency; imported when an image is decoded."""


def vectorize_map(operands: Sequence[object], settings: Settings) -> tuple[Array]:
    """The values of the keys in the settings, [1, keys]; 0 (an empty string) for missing ones."""
    given, dtype = _dict(operands[0]), settings["dtype"]
    return (_row([given.get(key, _nothing(dtype)) for key in settings["keys"]], dtype),)


def cast_map(operands: Sequence[object], settings: Settings) -> tuple[Array]:
    """The values, in the order of their keys, as ``dtype``, [1, values].

    With a ``length`` the keys are indices below it; missing values are 0.
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


def decode_image(operands: Sequence[object], settings: Settings) -> tuple[Array]:
    """The u8[height, width, channels] of an encoded image; empty if it cannot be decoded.

    ValueError if the operand is not a vector of bytes; RunError if Pillow is missing.
    """
    stream = np.asarray(operands[0])
    if stream.dtype != np.uint8 or stream.ndim != 1:
        raise ValueError(f"an encoded image is u8[bytes], not {stream.dtype}{list(stream.shape)}")
    pillow = _pillow()
    gray = settings["pixel_format"] == "Grayscale"
    try:
        with pillow.open(io.BytesIO(stream.tobytes())) as image:
            pixels: Array = np.array(image.convert("L" if gray else "RGB"))
    except (OSError, SyntaxError):  # raised by Pillow for broken files; empty by the standard
        return (np.empty((0, 0, 1 if gray else 3), np.uint8),)
    if gray:
        return (pixels[:, :, None],)
    return (pixels[:, :, ::-1] if settings["pixel_format"] == "BGR" else pixels,)


def _pillow() -> Any:
    try:
        return import_module(_PILLOW)
    except ImportError as error:
        raise RunError(
            "the model decodes images, which takes Pillow; pip install 'modelcc[images]'"
        ) from error


FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {
        **TEXT_FUNCTIONS,
        "decode_image": decode_image,
        "vectorize_map": vectorize_map,
        "cast_map": cast_map,
    }
)


def performed(step: HostStep, known: Mapping[str, object]) -> dict[str, Array]:
    """The results of ``step`` by name; InputError for an invalid input."""
    operands = [known[name] for name in step.inputs]
    try:
        results = FUNCTIONS[step.function](operands, cast("Settings", step.settings))
    except ValueError as error:
        where = ", ".join(f"'{name}'" for name in step.inputs)
        node = step.outputs[0].rpartition(".")[0]
        raise InputError(f"input {where}", f"values for {node}", "others", str(error)) from error
    return dict(zip(step.outputs, results, strict=True))
