"""Records of models in the zoo: origin and inputs.  Needs NumPy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

BATCH = "batch"
"""Name of the only symbolic dimension of zoo models."""

Dimension = int | str
Family = Literal["timm", "layers", "transformers"]

Exporter = Literal["torchscript", "dynamo"]
"""Both exporters of torch.onnx are in wide use, and emit rather different graphs."""


@dataclass(frozen=True)
class Normal:
    """Fill with samples of the normal distribution."""

    mean: float = 0.0
    deviation: float = 1.0


@dataclass(frozen=True)
class Integers:
    """Fill with integers drawn uniformly from [low, high)."""

    low: int
    high: int


Fill = Normal | Integers


@dataclass(frozen=True)
class Input:
    """One model input: `shape` may contain `BATCH`; `dtype` is a NumPy name."""

    name: str
    shape: tuple[Dimension, ...]
    dtype: str = "float32"
    fill: Fill = Normal()

    def sizes(self, batch: int) -> tuple[int, ...]:
        """The shape with `BATCH` replaced by `batch`."""
        return tuple(batch if isinstance(size, str) else size for size in self.shape)

    def sample(self, batch: int, generator: np.random.Generator) -> np.ndarray:
        """A random value for this input."""
        match self.fill:
            case Normal(mean, deviation):
                value = generator.normal(mean, deviation, self.sizes(batch))
            case Integers(low, high):
                value = generator.integers(low, high, self.sizes(batch))
        return np.asarray(value, dtype=self.dtype)


@dataclass(frozen=True)
class Model:
    """A recipe for one ONNX model: `architecture` is the name its `family` builds it under.

    `layers` are those of a transformer.
    """

    name: str
    family: Family
    architecture: str
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...] = ("output",)
    exporter: Exporter = "torchscript"
    layers: int = 0

    def feeds(self, seed: int = 0, batch: int = 1) -> dict[str, np.ndarray]:
        """Random inputs by name; the same seed gives the same values everywhere."""
        generator = np.random.default_rng(seed)
        return {item.name: item.sample(batch, generator) for item in self.inputs}


def input_to_json(item: Input, batch: int | None) -> dict[str, Any]:
    """The JSON form of an input; `batch` None keeps the batch dimension symbolic."""
    shape = item.shape if batch is None else item.sizes(batch)
    match item.fill:
        case Normal(mean, deviation):
            fill: dict[str, float] = {"mean": mean, "deviation": deviation}
        case Integers(low, high):
            fill = {"low": low, "high": high}
    return {"name": item.name, "shape": list(shape), "dtype": item.dtype, "fill": fill}


def input_from_json(record: Mapping[str, Any]) -> Input:
    """The inverse of `input_to_json`."""
    fill: Mapping[str, Any] = record["fill"]
    filled: Fill = Integers(**fill) if "low" in fill else Normal(**fill)
    return Input(record["name"], tuple(record["shape"]), record["dtype"], filled)
