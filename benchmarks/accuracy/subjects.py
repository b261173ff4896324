"""The models under test, and their inputs; sizes in order, the usual one first."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test

import modelcc
from benchmarks.accuracy.signals import (
    Fill,
    bytes_of_text,
    detections,
    image,
    normal,
    numbers,
    tokens,
)
from benchmarks.zoo.records import Input, Integers, input_from_json
from modelcc.feeds.random import index_limits
from modelcc.ir.graph import Graph
from modelcc.ir.index import Range, evaluate, symbols

Arrays = dict[str, np.ndarray]
Shape = tuple[int, ...]

BATCHES = (1, 2, 5)
"""Batch sizes for models whose batch is symbolic."""

INNER = (64, 32, 96)
"""Sizes of the other symbolic dimensions: of sequences, images, spectra."""


@dataclass(frozen=True)
class Feed:
    """One input: its dtype, the shapes to try and a generator of values."""

    dtype: str
    shapes: tuple[Shape, ...]
    fill: Fill

    def at(self, number: int, generator: np.random.Generator) -> np.ndarray:
        """The value at size ``number``."""
        shape = self.shapes[min(number, len(self.shapes) - 1)]
        return np.array(self.fill(shape, generator), self.dtype, order="C")


@dataclass(frozen=True)
class Subject:
    """A model file and its inputs."""

    path: Path
    inputs: Mapping[str, Feed]

    @property
    def sizes(self) -> int:
        """The number of sizes to try."""
        return max((len(feed.shapes) for feed in self.inputs.values()), default=1)

    def feeds(self, number: int, seed: int = 0) -> Arrays:
        """Inputs by name at size ``number``."""
        generator = np.random.default_rng(seed)
        return {name: feed.at(number, generator) for name, feed in self.inputs.items()}


def _batches(*rest: int) -> tuple[Shape, ...]:
    return tuple((batch, *rest) for batch in BATCHES)


def _states(layers: int, width: int) -> tuple[Shape, ...]:
    return tuple((layers, batch, width) for batch in BATCHES)


REAL: Mapping[str, Mapping[str, Feed]] = {
    "ppocrv4_det": {
        "x": Feed("float32", ((1, 3, 96, 160), (1, 3, 64, 64), (2, 3, 160, 224)), image),
    },
    "ppocrv4_rec": {
        "x": Feed("float32", ((1, 3, 48, 160), (2, 3, 48, 96), (1, 3, 48, 320)), image),
    },
    "ppocr_cls_v2": {"x": Feed("float32", _batches(3, 48, 192), image)},
    "ppocr_cls_v2_qoperator": {"x": Feed("float32", _batches(3, 48, 192), image)},
    "magika_v3_3": {"bytes": Feed("int32", _batches(2048), bytes_of_text)},
    "ultraface_rfb_320": {"input": Feed("float32", ((1, 3, 240, 320),), image)},
    "ddddocr_det_yolox": {"images": Feed("float32", ((1, 3, 416, 416),), image)},
    "basic_pitch": {"serving_default_input_2:0": Feed("float32", _batches(43844, 1), normal)},
    "dnsmos_p808": {"input_1": Feed("float32", _batches(900, 120), normal)},
    "onnx2c_mnist_cntk": {"Input3": Feed("float32", ((1, 1, 28, 28),), image)},
    "tract_keras_example": {"main_input_input": Feed("float32", _batches(100), tokens(2))},
    "silero_vad_16k_op15": {
        "input": Feed("float32", _batches(576), normal),
        "state": Feed("float32", _states(2, 128), normal),
        "sr": Feed("int64", ((),), numbers(16000)),
    },
    "silero_vad_half": {
        "input": Feed("float32", _batches(576), normal),
        "state": Feed("float32", _states(2, 128), normal),
    },
    "aecmos_16k": {
        "input": Feed("float32", ((1, 3, 64, 160), (1, 3, 32, 160), (1, 3, 96, 160)), normal),
        "h0": Feed("float32", ((4, 1, 64),), normal),
    },
    "yolov8_nms_postproc": {
        "detection": Feed("float32", ((1, 84, 256), (1, 84, 64), (1, 36, 700)), detections),
        "config": Feed("float32", ((3,),), numbers(100, 0.45, 0.25)),
    },
    "romanizer_decoder": {
        "prefix": Feed("int64", ((1, 64), (2, 32), (5, 96)), tokens(160)),
        "memory": Feed("float32", ((1, 48, 256), (2, 64, 256), (5, 32, 256)), normal),
        "src_mask": Feed("bool", ((1, 48), (2, 64), (5, 32)), numbers(1)),
        "hidden": Feed("float32", _batches(2, 256), normal),
    },
}
"""Trained models that need more constraints than their interface declares, by file name."""


def zoo(folder: Path) -> Iterator[Subject]:
    """Every model of the zoo in ``folder``, fed as its index says."""
    index = json.loads((folder / "index.json").read_text())
    for name in sorted(index):
        path = folder / f"{name}.onnx"
        if path.exists():
            inputs = [input_from_json(entry) for entry in index[name]["inputs"]]
            yield Subject(path, {item.name: _of_zoo(item) for item in inputs})


def real(folder: Path) -> Iterator[Subject]:
    """The trained models in ``folder``, recursively; those not in :data:`REAL` have no inputs
    yet."""
    for path in sorted(folder.rglob("*.onnx")):
        yield Subject(path, REAL.get(path.stem, {}))


def declared(subject: Subject) -> Subject:
    """``subject`` with inputs from its interface, if it has none."""
    if subject.inputs:
        return subject
    graph = modelcc.import_model(subject.path)
    sizes = [_sizes(graph, number) for number in range(len(BATCHES))]
    limits = index_limits(graph)
    inputs = {}
    for name in graph.inputs:
        type = graph.types[name]
        shapes = [tuple(evaluate(extent, at) for extent in type.shape) for at in sizes]
        fill = normal if type.dtype.is_float else tokens(limits.get(name, 2))
        inputs[name] = Feed(type.dtype.numpy.name, tuple(dict.fromkeys(shapes)), fill)
    return Subject(subject.path, inputs)


def _sizes(graph: Graph, number: int) -> dict[str, int]:
    """A size for every named dimension: leading ones are taken for batches."""
    shapes = [graph.types[name].shape for name in graph.inputs]
    leading = {name for shape in shapes for name in symbols(shape[0] if shape else 0)}
    wanted = {n: (BATCHES if n in leading else INNER)[number] for n in graph.dims}
    return {name: _within(graph.dims[name], size) for name, size in wanted.items()}


def _within(bounds: Range, size: int) -> int:
    least = bounds.lo if isinstance(bounds.lo, int) else 1
    return min(max(least, size), bounds.hi) if isinstance(bounds.hi, int) else max(least, size)


def light() -> Iterator[Subject]:
    """The nine architectures in the onnx wheel, whose weights are generated at run time."""
    folder = Path(onnx.backend.test.__file__).parent / "data" / "light"
    for path in sorted(folder.glob("*.onnx")):
        graph = onnx.load(path).graph
        constants = {tensor.name for tensor in graph.initializer}
        yield Subject(path, {i.name: _static(i) for i in graph.input if i.name not in constants})


def _of_zoo(item: Input) -> Feed:
    symbolic = any(isinstance(size, str) for size in item.shape)
    shapes = tuple(item.sizes(batch) for batch in (BATCHES if symbolic else (1,)))
    fill = tokens(item.fill.high) if isinstance(item.fill, Integers) else normal
    return Feed(item.dtype, shapes, fill)


def _static(value: onnx.ValueInfoProto) -> Feed:
    tensor = value.type.tensor_type
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return Feed(dtype.name, (tuple(d.dim_value for d in tensor.shape.dim),), normal)
