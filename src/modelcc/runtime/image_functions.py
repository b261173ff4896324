"""Decoding of images, by Pillow: done here, before compiled code runs."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from modelcc.ir.types import Array
from modelcc.runtime.errors import RunError

_PILLOW = "PIL.Image"
"""An optional dependency; imported when an image comes."""


def decode_image(operands: Sequence[object], settings: Mapping[str, Any]) -> tuple[Array]:
    """The u8[height, width, channels] of an encoded image; empty if it cannot be decoded.

    ValueError if the operand is no vector of bytes; RunError if Pillow is missing.
    """
    stream = np.asarray(operands[0])
    if stream.dtype != np.uint8 or stream.ndim != 1:
        raise ValueError(f"an encoded image is u8[bytes], not {stream.dtype}{list(stream.shape)}")
    pillow = _pillow()
    gray = settings["pixel_format"] == "Grayscale"
    try:
        with pillow.open(io.BytesIO(stream.tobytes())) as image:
            pixels: Array = np.array(image.convert("L" if gray else "RGB"))
    except (OSError, SyntaxError):  # what Pillow raises for broken files; empty by the standard
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


IMAGE_FUNCTIONS: Mapping[
    str, Callable[[Sequence[object], Mapping[str, Any]], tuple[Array, ...]]
] = MappingProxyType({"decode_image": decode_image})
