"""The models that must be right, and what each is fed; sizes in order from the usual one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test

from benchmarks.accuracy.signals import Fill, bytes_of_text, image, normal, tokens
from benchmarks.zoo.records import Input, Integers, input_from_json

Arrays = dict[str, np.ndarray]
Shape = tuple[int, ...]

BATCHES = (1, 2, 5)
"""Batch sizes for models whose batch is symbolic."""


@dataclass(frozen=True)
class Feed:
    """One input: its element type, the shapes to try and what they are filled with."""

    dtype: str
    shapes: tuple[Shape, ...]
    fill: Fill

    def at(self, number: int, generator: np.random.Generator) -> np.ndarray:
        """The value at size ``number``."""
        shape = self.shapes[min(number, len(self.shapes) - 1)]
        return np.ascontiguousarray(self.fill(shape, generator).astype(self.dtype))


@dataclass(frozen=True)
class Subject:
    """A model file and its inputs."""

    path: Path
    inputs: Mapping[str, Feed]

    @property
    def sizes(self) -> int:
        """How many sizes there are to try."""
        return max((len(feed.shapes) for feed in self.inputs.values()), default=1)

    def feeds(self, number: int, seed: int = 0) -> Arrays:
        """Inputs by name at size ``number``."""
        generator = np.random.default_rng(seed)
        return {name: feed.at(number, generator) for name, feed in self.inputs.items()}


def _batches(*rest: int) -> tuple[Shape, ...]:
    return tuple((batch, *rest) for batch in BATCHES)


REAL: Mapping[str, Mapping[str, Feed]] = {
    "ppocrv4_det": {
        "x": Feed("float32", ((1, 3, 96, 160), (1, 3, 64, 64), (2, 3, 160, 224)), image),
    },
    "ppocrv4_rec": {
        "x": Feed("float32", ((1, 3, 48, 160), (2, 3, 48, 96), (1, 3, 48, 320)), image),
    },
    "ppocr_cls_v2": {"x": Feed("float32", _batches(3, 48, 192), image)},
    "magika_v3_3": {"bytes": Feed("int32", _batches(2048), bytes_of_text)},
    "ultraface_rfb_320": {"input": Feed("float32", ((1, 3, 240, 320),), image)},
    "ddddocr_det_yolox": {"images": Feed("float32", ((1, 3, 416, 416),), image)},
    "basic_pitch": {"serving_default_input_2:0": Feed("float32", _batches(43844, 1), normal)},
    "dnsmos_p808": {"input_1": Feed("float32", _batches(900, 120), normal)},
    "onnx2c_mnist_cntk": {"Input3": Feed("float32", ((1, 1, 28, 28),), image)},
    "tract_keras_example": {"main_input_input": Feed("float32", _batches(100), tokens(2))},
}
"""The trained models that are required, by file name; see ``index.json`` next to them."""


def zoo(folder: Path) -> Iterator[Subject]:
    """Every model of the zoo in ``folder``, fed as its index says."""
    index = json.loads((folder / "index.json").read_text())
    for name in sorted(index):
        path = folder / f"{name}.onnx"
        if path.exists():
            inputs = [input_from_json(entry) for entry in index[name]["inputs"]]
            yield Subject(path, {item.name: _of_zoo(item) for item in inputs})


def real(folder: Path) -> Iterator[Subject]:
    """The trained models that are in ``folder``."""
    for name, inputs in REAL.items():
        path = folder / f"{name}.onnx"
        if path.exists():
            yield Subject(path, inputs)


def light() -> Iterator[Subject]:
    """The nine architectures in the onnx wheel, whose weights are made when they run."""
    folder = Path(onnx.backend.test.__file__).parent / "data" / "light"
    for path in sorted(folder.glob("*.onnx")):
        graph = onnx.load(path).graph
        constants = {tensor.name for tensor in graph.initializer}
        yield Subject(path, {i.name: _declared(i) for i in graph.input if i.name not in constants})


def _of_zoo(item: Input) -> Feed:
    symbolic = any(isinstance(size, str) for size in item.shape)
    shapes = tuple(item.sizes(batch) for batch in (BATCHES if symbolic else (1,)))
    fill = tokens(item.fill.high) if isinstance(item.fill, Integers) else normal
    return Feed(item.dtype, shapes, fill)


def _declared(value: onnx.ValueInfoProto) -> Feed:
    tensor = value.type.tensor_type
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return Feed(dtype.name, (tuple(d.dim_value for d in tensor.shape.dim),), normal)
