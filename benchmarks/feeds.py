"""Random feeds for any ONNX file: by the index next to it, or else by its declared inputs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from benchmarks.zoo.records import Input, Integers, Normal, input_from_json

Sizes = Mapping[str, tuple[int, ...]]


def feeds_for(path: Path, sizes: Sizes, seed: int = 0, batch: int = 1) -> dict[str, np.ndarray]:
    """Values by input name; `sizes` overrides shapes, other symbolic dimensions become `batch`."""
    index = path.with_name("index.json")
    entries = json.loads(index.read_text()) if index.exists() else {}
    if isinstance(entries, dict) and path.stem in entries:
        inputs = [input_from_json(entry) for entry in entries[path.stem]["inputs"]]
    else:
        inputs = _declared(onnx.load(str(path), load_external_data=False).graph, sizes)
    generator = np.random.default_rng(seed)
    return {item.name: item.sample(batch, generator) for item in inputs}


def _declared(graph: onnx.GraphProto, sizes: Sizes) -> list[Input]:
    """Floats are normal; integers are 0 or 1, valid as any index or mask."""
    constants = {tensor.name for tensor in graph.initializer}
    inputs: list[Input] = []
    for value in graph.input:
        if value.name in constants:
            continue
        tensor = value.type.tensor_type
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        declared = tuple(dim.dim_param or max(1, dim.dim_value) for dim in tensor.shape.dim)
        fill = Normal() if dtype.kind == "f" else Integers(0, 2)
        inputs.append(Input(value.name, sizes.get(value.name, declared), dtype.name, fill))
    return inputs
