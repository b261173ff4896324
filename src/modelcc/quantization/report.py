"""What quantisation did to a model: layer by layer, and in all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class LayerRow:
    """A layer of a user's ``name``, whose op makes the value ``result`` of the graph.

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
    """An output: signal to noise in dB, and the root mean square of the error, relative; of whole
    numbers the share that differs."""

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
        """Of the worst output."""
        return max((row.error for row in self.outputs), default=0.0)

    def to_json(self) -> str:
        """All of it; what is infinite, as exact outputs are, is null."""
        return json.dumps(_finite(asdict(self)), indent=1, default=str)


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {str(k): _finite(v) for k, v in value.items()}  # type: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]  # type: ignore[reportUnknownVariableType]
    return None if isinstance(value, float) and value in (float("inf"), float("-inf")) else value
