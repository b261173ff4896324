"""Export of a torch module to a checked ONNX file, and the index of a folder of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from benchmarks.zoo.build import example
from benchmarks.zoo.records import BATCH, Model, input_to_json

TOLERANCE = 2e-4
"""Largest accepted difference to torch, relative to the largest output."""


def export(model: Model, module: nn.Module, path: Path, batch: int | None) -> None:
    """Writes `module` as one ONNX file; `batch` None makes the batch dimension symbolic."""
    inputs = example(model, batch=2 if batch is None else batch)
    names = [item.name for item in model.inputs]
    with torch.no_grad():
        match model.exporter:
            case "torchscript":
                _torchscript(model, module, path, inputs, names, batch is None)
            case "dynamo":
                _dynamo(model, module, path, inputs, names, batch is None)


def _torchscript(
    model: Model,
    module: nn.Module,
    path: Path,
    inputs: tuple[Tensor, ...],
    names: list[str],
    symbolic: bool,
) -> None:
    axes = {name: {0: BATCH} for name in (*names, *model.outputs)} if symbolic else None
    torch.onnx.export(
        module,
        inputs,
        str(path),
        input_names=names,
        output_names=list(model.outputs),
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )


def _dynamo(
    model: Model,
    module: nn.Module,
    path: Path,
    inputs: tuple[Tensor, ...],
    names: list[str],
    symbolic: bool,
) -> None:
    shapes = [{0: torch.export.Dim(BATCH)} for _ in names]
    variadic = (*shapes[:1], tuple(shapes[1:])) if len(names) > 1 else tuple(shapes)
    torch.onnx.export(
        module,
        inputs,
        str(path),
        input_names=names,
        output_names=list(model.outputs),
        dynamic_shapes=variadic if symbolic else None,
        opset_version=18,
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def check(model: Model, module: nn.Module, path: Path, batch: int | None) -> float:
    """Runs the file on onnxruntime against torch; returns the relative error.

    ValueError if they differ by more than `TOLERANCE`.
    """
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    worst = 0.0
    for size in (1, 3) if batch is None else (batch,):
        with torch.no_grad():
            outputs = module(*example(model, seed=1, batch=size))
        expected = outputs if isinstance(outputs, tuple) else (outputs,)
        actual = session.run(list(model.outputs), model.feeds(seed=1, batch=size))
        for one, other in zip(expected, actual, strict=True):
            reference = one.numpy()
            worst = max(worst, float(np.abs(reference - other).max() / np.abs(reference).max()))
    if not worst <= TOLERANCE:
        raise ValueError(f"{path.name}: onnxruntime and torch differ by {worst:.2e}")
    return worst


def describe(model: Model, path: Path, batch: int | None) -> dict[str, Any]:
    """The index entry of an exported file."""
    proto = onnx.load(str(path))
    operators = Counter(node.op_type for node in proto.graph.node)
    return {
        "file": path.name,
        "inputs": [input_to_json(item, batch) for item in model.inputs],
        "outputs": list(model.outputs),
        "operators": dict(sorted(operators.items())),
        "parameters": sum(int(np.prod(item.dims)) for item in proto.graph.initializer),
        "opset": proto.opset_import[0].version,
        "producer": f"{proto.producer_name} {proto.producer_version}",
    }


def update_index(folder: Path, name: str, entry: dict[str, Any]) -> None:
    """Adds `entry` to `index.json` of `folder`."""
    path = folder / "index.json"
    index = json.loads(path.read_text()) if path.exists() else {}
    index[name] = entry
    path.write_text(json.dumps(dict(sorted(index.items())), indent=1) + "\n")
