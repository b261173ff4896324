"""Report of quantisation: per layer, and in all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from pathlib import Path
from typing import Any, cast

from modelcc.artifact.replacement import replace_contents


@dataclass(frozen=True)
class LayerRow:
    """A layer with the user's ``name``, whose op computes the value ``result`` of the graph.

    Bits of its ``activations`` and ``weights`` (32: floats, None: it has none), ``scale`` and
    ``zero`` point of its first operand, ``sqnr`` of its result in dB, and the error of the outputs
    if it ``alone`` is quantised.
    """

    name: str
    result: str
    op: str
    activations: int
    weights: int | None
    scale: float | None
    zero: int | None
    sqnr: float | None
    alone: float | None


@dataclass(frozen=True)
class OutputRow:
    """An output: signal-to-noise ratio in dB, and the relative root mean square error; for integers
    the fraction that differs."""

    name: str
    sqnr: float
    error: float


@dataclass(frozen=True)
class QuantizationReport:
    """Of a model quantised by ``settings``, over ``runs`` of the calibration data (0: none)."""

    model: str
    settings: Mapping[str, object]
    layers: tuple[LayerRow, ...]
    outputs: tuple[OutputRow, ...]
    bytes_before: int
    bytes_after: int
    runs: int

    @property
    def error(self) -> float:
        """The error of the worst output."""
        return max((row.error for row in self.outputs), default=0.0)

    def as_dict(self) -> dict[str, object]:
        """All fields; infinite values, such as the SQNR of exact outputs, are None."""
        return {**_finite(asdict(self)), "error": self.error}

    def save(self, path: Path) -> None:
        """Writes it as JSON, atomically."""
        text = json.dumps(self.as_dict(), indent=1)
        replace_contents(path, text)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {name: _finite(item) for name, item in items}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("Sequence[Any]", value)]
    return None if isinstance(value, float) and not isfinite(value) else value
