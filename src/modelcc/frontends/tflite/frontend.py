"""Entry point of the TFLite frontend: files and their bytes."""

from __future__ import annotations

from pathlib import Path

from modelcc.frontends.kit.files import open_model
from modelcc.frontends.tflite.convert import convert
from modelcc.frontends.tflite.inputs import Dims, model_ends
from modelcc.frontends.tflite.reading import read_model
from modelcc.ir.graph import Graph


def import_tflite(source: str | Path | bytes, dims: Dims | None = None) -> Graph:
    """The graph of a TFLite file or its bytes; ``dims`` fixes or bounds its named dimensions.

    :class:`ModelError` if the source is not such a model, and :class:`UnsupportedModel`, listing
    every operator, for what modelcc cannot import.
    """
    if isinstance(source, bytes):
        data, name = source, "model"
    else:
        data, name = _contents(Path(source)), Path(source).stem
    model = read_model(data, name)
    return convert(model, model_ends(model, dims or {}))


def _contents(path: Path) -> bytes:
    with open_model(path) as file:
        return file.read()
